"""Code examples: chunks that only a search for examples returns."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0019"
down_revision = "0018"
oldest_code = "0019"


def upgrade() -> None:
    """Run ``0019_code_examples.sql``."""
    run_script(__file__)
