"""Fewer vacuums of the vectors, each of which costs more than twice as much as a new index."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0041"
down_revision = "0040"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0041_rare_vacuums_of_vectors.sql``."""
    run_script(__file__)
