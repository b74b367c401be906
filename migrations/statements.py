"""SQL of migrations, and the record of the oldest code that may use each revision.

Code can't know migrations that were written after it. A migration therefore names the oldest code
that may keep running beside it: ``oldest_code``, the number of that code's newest migration.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from alembic import op
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import Script
from sqlalchemy import text

__all__ = ["record_oldest_code", "run_script"]

_BLANK_LINES = re.compile(r"\n\s*\n")


def run_script(migration: str) -> None:
    """Run ``<migration>.sql``, given the migration's ``__file__``.

    The statements in the file are separated by blank lines, because the driver takes one at a time.
    """
    script = Path(migration).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in _BLANK_LINES.split(script.strip()):
        op.execute(statement.replace(":", r"\:"))


_RECORD = text(
    "insert into schema_revisions (revision, oldest_code) "
    "select :revision, greatest(:oldest_code, max(oldest_code)) from schema_revisions"
)


def record_oldest_code(
    ctx: MigrationContext, step: MigrationInfo, heads: Collection[Any], run_args: Mapping[str, Any]
) -> None:
    """Record ``oldest_code`` after each migration; alembic calls this in its transaction.

    Code that an earlier migration excluded stays excluded. The first migrations precede this rule.
    """
    script = step.up_revision
    if not isinstance(script, Script) or ctx.connection is None:
        return
    oldest_code = getattr(script.module, "oldest_code", None)
    if oldest_code is not None:
        values = {"revision": script.revision, "oldest_code": oldest_code}
        ctx.connection.execute(_RECORD, values)
