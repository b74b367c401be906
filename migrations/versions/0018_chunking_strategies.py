"""Strategies of chunking by collection."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0018"
down_revision = "0017"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0018_chunking_strategies.sql``."""
    run_script(__file__)
