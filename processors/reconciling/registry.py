"""The checks of an index, in reading order: from the log to the structures that queries read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from processors.reconciling.archive import find_archive_drifts
from processors.reconciling.case import Case
from processors.reconciling.documents import find_document_drifts
from processors.reconciling.findings import Drift
from processors.reconciling.generations import find_generation_drifts
from processors.reconciling.ledger import find_ledger_drifts
from processors.reconciling.outbox import find_outbox_drifts
from processors.reconciling.postings import find_posting_drifts
from processors.reconciling.rows import find_row_drifts
from processors.reconciling.vector_indexes import find_vector_index_drifts
from processors.reconciling.vectors import find_vector_drifts

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
