"""Proof that the vectors of older generations are below the bound."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0032"
down_revision = "0031"
oldest_code = "0025"
alone = True  # it reads a large table, and may not hold the locks of others meanwhile


def upgrade() -> None:
    """Run ``0032_older_vectors.sql``."""
    run_script(__file__)
