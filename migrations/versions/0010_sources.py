"""Registered sources, and which of them each document is of."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0010"
down_revision = "0009"
oldest_code = "0010"
"""Workers before this one refuse events that name their source, and forget whose a document is."""


def upgrade() -> None:
    """Create what ``0010_sources.sql`` says."""
    run_script(__file__)
