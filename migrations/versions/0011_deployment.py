"""Identity of a deployment, vectors of private texts by agent, and one scan for all maintenance."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0011"
down_revision = "0010"
oldest_code = "0005"
"""Older workers may run beside this schema. Private texts that they write get the hash of shared
texts, until the document changes or is built again."""


def upgrade() -> None:
    """Run ``0011_deployment.sql``."""
    run_script(__file__)
