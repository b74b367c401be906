"""Documents, their chunks and vectors, the ledger; row-level security on all of it."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Run ``0001_documents.sql``."""
    run_script(__file__)
