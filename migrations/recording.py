"""Keeps in the database which code may use each revision of its schema.

Code can't know migrations that were written after it, so a migration itself says how old code may
be that goes on beside it: ``oldest_code``, the number of that code's newest migration.
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
    """Called by alembic after each migration, in its transaction.

    What an earlier one has shut out stays so. The first migrations came before this rule.
    """
    script = step.up_revision
    if not isinstance(script, Script) or ctx.connection is None:
        return
    oldest_code = getattr(script.module, "oldest_code", None)
    if oldest_code is not None:
        values = {"revision": script.revision, "oldest_code": oldest_code}
        ctx.connection.execute(_RECORD, values)
