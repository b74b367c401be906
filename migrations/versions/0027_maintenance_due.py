"""Notes of the projects that are due for maintenance."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0027"
down_revision = "0026"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0027_maintenance_due.sql``."""
    run_script(__file__)
