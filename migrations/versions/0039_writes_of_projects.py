"""Writes to several projects in one transaction, and projects whose vectors are overdue."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0039"
down_revision = "0038"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0039_writes_of_projects.sql``."""
    run_script(__file__)
