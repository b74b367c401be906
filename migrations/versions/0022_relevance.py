"""Costs of reranking, and calibration of the models of a generation."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0022"
down_revision = "0021"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0022_relevance.sql``."""
    run_script(__file__)
