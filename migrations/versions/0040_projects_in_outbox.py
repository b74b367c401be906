"""Projects with events in the outbox, found by one statement."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0040"
down_revision = "0039"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0040_projects_in_outbox.sql``."""
    run_script(__file__)
