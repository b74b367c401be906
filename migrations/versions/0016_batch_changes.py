"""Changes of batches that publishers without a counter of their own have published."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0016"
down_revision = "0015"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0016_batch_changes.sql``."""
    run_script(__file__)
