"""Sources that only one agent may see."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0025"
down_revision = "0024"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0025_private_sources.sql``."""
    run_script(__file__)
