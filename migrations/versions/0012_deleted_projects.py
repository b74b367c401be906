"""Projects that are deleted, until their archive has gone too."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0012"
down_revision = "0011"
oldest_code = "0012"
"""Workers before this one remember the id of a project for ever, that of a deleted one too."""


def upgrade() -> None:
    """Create what ``0012_deleted_projects.sql`` says."""
    run_script(__file__)
