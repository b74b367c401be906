"""Archive files that hold parts of several projects."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0041"
down_revision = "0040"
oldest_code = "0041"


def upgrade() -> None:
    """Run ``0041_shared_files.sql``."""
    run_script(__file__)
