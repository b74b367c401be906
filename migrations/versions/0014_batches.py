"""Batches of changes; the batch, agent and uri of each change in the ledger."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0014"
down_revision = "0013"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0014_batches.sql``."""
    run_script(__file__)
