"""Vectors that go with their chunks by a trigger, and a bound of the older generations."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0031"
down_revision = "0030"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0031_vector_triggers.sql``."""
    run_script(__file__)
