"""Statistics that know every large generation of a few projects."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0038"
down_revision = "0037"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0038_known_generations.sql``."""
    run_script(__file__)
