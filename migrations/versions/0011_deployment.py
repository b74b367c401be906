"""The identity of a deployment, vectors of private texts by agent, one look for all upkeep."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0011"
down_revision = "0010"
oldest_code = "0005"
"""Older workers go on beside this schema. What they write of private texts meanwhile has the hash
of shared texts, until the document changes or is built again."""


def upgrade() -> None:
    """Create what ``0011_deployment.sql`` says."""
    run_script(__file__)
