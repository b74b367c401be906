"""Number of chunks of each document."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0021"
down_revision = "0020"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0021_document_counts.sql``."""
    run_script(__file__)
