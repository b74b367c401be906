"""Sources that only one agent may see, and overlays."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0026"
down_revision = "0025"
oldest_code = "0025"


def upgrade() -> None:
    """Run ``0026_source_scopes.sql``."""
    run_script(__file__)
