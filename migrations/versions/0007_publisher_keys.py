"""Signing keys of publishers, and the signatures of events in the outbox."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0007"
down_revision = "0006"
oldest_code = "0005"
"""Older code checks no signatures: add keys only when every worker has this migration's code."""


def upgrade() -> None:
    """Run ``0007_publisher_keys.sql``."""
    run_script(__file__)
