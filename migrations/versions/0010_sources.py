"""Registered sources, and the source of each document."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0010"
down_revision = "0009"
oldest_code = "0010"
"""Older workers refuse events that name their source, and lose the source of a document."""


def upgrade() -> None:
    """Run ``0010_sources.sql``."""
    run_script(__file__)
