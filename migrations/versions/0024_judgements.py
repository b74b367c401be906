"""Judgements of results."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0024"
down_revision = "0023"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0024_judgements.sql``."""
    run_script(__file__)
