"""Separate roles for answerers, publishers, operators; workers keep only the rights they need."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0006"
down_revision = "0005"
oldest_code = "0005"
"""Older workers never used the rights that they lose; replays and doctors, run as workers, did."""


def upgrade() -> None:
    """Run ``0006_roles.sql``."""
    run_script(__file__)
