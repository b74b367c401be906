"""API keys of the gateway's callers, and the role of the gateway."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0013"
down_revision = "0012"
oldest_code = "0012"
"""Only additions."""


def upgrade() -> None:
    """Run ``0013_api_keys.sql``."""
    run_script(__file__)
