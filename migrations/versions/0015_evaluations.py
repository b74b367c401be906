"""Saved evaluations of retrieval quality."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0015"
down_revision = "0014"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0015_evaluations.sql``."""
    run_script(__file__)
