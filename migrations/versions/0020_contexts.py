"""Contexts that a language model writes for chunks, and the costs of models."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0020"
down_revision = "0019"
oldest_code = "0012"


def upgrade() -> None:
    """Run ``0020_contexts.sql``."""
    run_script(__file__)
