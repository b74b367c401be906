"""The archive's index, and the outbox of durable publishing."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Run ``0004_archive.sql``."""
    run_script(__file__)
