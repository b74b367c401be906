"""Statements about several projects: events in the outbox, archived contents and files."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0040"
down_revision = "0039"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0040_archived_projects.sql``."""
    run_script(__file__)
