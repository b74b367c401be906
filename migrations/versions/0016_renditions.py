"""Contents that are bytes, and places of chunks in them."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0016"
down_revision = "0015"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0016_renditions.sql``."""
    run_script(__file__)
