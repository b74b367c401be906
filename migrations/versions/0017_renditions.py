"""Contents that are bytes, and places of chunks in them."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0017"
down_revision = "0016"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0017_renditions.sql``."""
    run_script(__file__)
