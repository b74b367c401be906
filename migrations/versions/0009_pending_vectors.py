"""Chunks that still need vectors, and chunks that a model refuses."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0009"
down_revision = "0008"
oldest_code = "0005"
"""Only additions: older workers write every vector with its chunk, as before."""


def upgrade() -> None:
    """Run ``0009_pending_vectors.sql``."""
    run_script(__file__)
