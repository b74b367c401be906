"""Postings of rare terms in shared rows, and narrower graphs of vectors."""

from __future__ import annotations

from migrations.statements import run_script

revision = "0025"
down_revision = "0024"
oldest_code = "0025"
"""Older code would not find the terms that share a row."""


def upgrade() -> None:
    """Run ``0025_bundles.sql``."""
    run_script(__file__)
