"""The keyword index, and the records of vector indexes."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Run ``0002_search.sql``."""
    run_script(__file__)
