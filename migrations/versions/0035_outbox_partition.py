"""Right of publishers to correct the partition of an event in the outbox."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0035"
down_revision = "0034"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0035_outbox_partition.sql``."""
    run_script(__file__)
