"""A function by which workers end sessions that fell silent in the middle of a statement."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0008"
down_revision = "0007"
oldest_code = "0005"
"""It only adds a function: workers before this one wait longer for a worker that is stopped."""


def upgrade() -> None:
    """Create what ``0008_silent_sessions.sql`` says."""
    run_script(__file__)
