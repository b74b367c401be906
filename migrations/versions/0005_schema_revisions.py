"""Record of the code that may use a schema newer than itself."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0005"
down_revision = "0004"
oldest_code = "0005"
"""Code before this migration accepts only its own schema."""


def upgrade() -> None:
    """Run ``0005_schema_revisions.sql``."""
    run_script(__file__)
