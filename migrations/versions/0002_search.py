"""The keyword index, and what is known of vector indexes."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create what ``0002_search.sql`` says."""
    run_script(__file__)
