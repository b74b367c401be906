"""Roles of their own for answerers, publishers and operators; workers have what they need."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0006"
down_revision = "0005"
oldest_code = "0005"
"""Workers before this one never used what they lose: replays and doctors did, as workers."""


def upgrade() -> None:
    """Create what ``0006_roles.sql`` says."""
    run_script(__file__)
