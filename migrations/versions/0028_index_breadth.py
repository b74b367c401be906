"""Vector indexes whose breadth depends on their size."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0028"
down_revision = "0027"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0028_index_breadth.sql``."""
    run_script(__file__)
