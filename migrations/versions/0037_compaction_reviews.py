"""Extent of the last compaction of an archive that looked for what to drop."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0037"
down_revision = "0036"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0037_compaction_reviews.sql``."""
    run_script(__file__)
