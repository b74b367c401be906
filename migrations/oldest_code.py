"""Record in the database of the oldest code that may use each revision of its schema.

Code can't know migrations that were written after it. A migration therefore names the oldest code
that may keep running beside it: ``oldest_code``, the number of that code's newest migration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import Script
from sqlalchemy import text

__all__ = ["record_oldest_code"]

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
