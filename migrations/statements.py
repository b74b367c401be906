"""Execution of the SQL file beside a migration."""

from __future__ import annotations

import re
from pathlib import Path

from alembic import op

__all__ = ["run_script"]

_BLANK_LINES = re.compile(r"\n\s*\n")


def run_script(migration: str) -> None:
    """Run ``<migration>.sql``, given the migration's ``__file__``.

    The statements in the file are separated by blank lines, because the driver takes one at a time.
    """
    script = Path(migration).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in _BLANK_LINES.split(script.strip()):
        op.execute(statement.replace(":", r"\:"))
