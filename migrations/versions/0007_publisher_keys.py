"""Keys that publishers sign with, and the signature of what waits in the outbox."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0007"
down_revision = "0006"
oldest_code = "0005"
"""Code before this one checks no signature: add keys once every worker is of this one."""


def upgrade() -> None:
    """Create what ``0007_publisher_keys.sql`` says."""
    run_script(__file__)
