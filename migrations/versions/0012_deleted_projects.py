"""Deleted projects, kept until their archive is deleted too."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0012"
down_revision = "0011"
oldest_code = "0012"
"""Older workers remember the id of a project for ever, even that of a deleted one."""


def upgrade() -> None:
    """Run ``0012_deleted_projects.sql``."""
    run_script(__file__)
