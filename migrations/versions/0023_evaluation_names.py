"""Names of saved evaluations."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0023"
down_revision = "0022"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0023_evaluation_names.sql``."""
    run_script(__file__)
