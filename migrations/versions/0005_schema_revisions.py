"""Which code may use a schema that is newer than itself."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0005"
down_revision = "0004"
oldest_code = "0005"
"""Code before this one takes no schema but its own."""


def upgrade() -> None:
    """Create what ``0005_schema_revisions.sql`` says."""
    run_script(__file__)
