"""A function with which workers end sessions that became silent in the middle of a statement."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0008"
down_revision = "0007"
oldest_code = "0005"
"""It only adds a function: older workers wait longer for a worker that is stopped."""


def upgrade() -> None:
    """Run ``0008_silent_sessions.sql``."""
    run_script(__file__)
