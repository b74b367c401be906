"""Reads of several projects in one call."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0029"
down_revision = "0028"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0029_batches_of_projects.sql``."""
    run_script(__file__)
