"""The checks of an index, in reading order: from the log to the structures that queries read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from processors.doctor.checks.archive import find_archive_drifts
from processors.doctor.checks.index import (
    find_document_drifts,
    find_posting_drifts,
    find_row_drifts,
    find_vector_drifts,
    find_vector_index_drifts,
)
from processors.doctor.checks.log import (
    find_generation_drifts,
    find_ledger_drifts,
    find_outbox_drifts,
)
from processors.doctor.context import Case
from processors.doctor.findings import Drift

__all__ = ["CHECKS", "Find"]

Find = Callable[[Case], Awaitable[list[Drift]]]

CHECKS: Mapping[str, Find] = {
    "archive": find_archive_drifts,
    "outbox": find_outbox_drifts,
    "ledger": find_ledger_drifts,
    "generations": find_generation_drifts,
    "documents": find_document_drifts,
    "rows": find_row_drifts,
    "vectors": find_vector_drifts,
    "postings": find_posting_drifts,
    "vector indexes": find_vector_index_drifts,
}
