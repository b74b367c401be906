"""Expiry of rows that no change, question or replay can need any more."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0034"
down_revision = "0033"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0034_retention.sql``."""
    run_script(__file__)
