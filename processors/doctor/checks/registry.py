"""The checks of an index, in reading order: from the log to the structures that queries read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from processors.doctor.checks.archive import check_archive
from processors.doctor.checks.index import (
    check_documents,
    check_postings,
    check_rows,
    check_vector_indexes,
    check_vectors,
)
from processors.doctor.checks.log import (
    check_generations,
    check_ledger,
    check_outbox,
)
from processors.doctor.context import ProjectContext
from processors.doctor.findings import Finding

__all__ = ["CHECKS", "Check"]

Check = Callable[[ProjectContext], Awaitable[list[Finding]]]

CHECKS: Mapping[str, Check] = {
    "archive": check_archive,
    "outbox": check_outbox,
    "ledger": check_ledger,
    "generations": check_generations,
    "documents": check_documents,
    "rows": check_rows,
    "vectors": check_vectors,
    "postings": check_postings,
    "vector indexes": check_vector_indexes,
}
