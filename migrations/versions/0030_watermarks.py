"""Watermark of the log in Postgres, for answers from its replicas."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0030"
down_revision = "0029"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0030_watermarks.sql``."""
    run_script(__file__)
