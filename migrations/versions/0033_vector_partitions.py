"""Vectors in partitions by generation, so that an index of one project costs the others nothing."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0033"
down_revision = "0032"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0033_vector_partitions.sql``."""
    run_script(__file__)
