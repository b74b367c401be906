"""Notes of pending chunks that no other process removes."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0036"
down_revision = "0035"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0036_kept_requests.sql``."""
    run_script(__file__)
