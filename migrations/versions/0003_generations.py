"""Generations: several indexes of one project side by side, one of them live."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Run ``0003_generations.sql``."""
    run_script(__file__)
