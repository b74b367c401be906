"""Candidates of a question: how many chunks each retriever is asked for, and by which request."""

from __future__ import annotations

from events.models import Filters, Query
from processors.answering.adjustments import COMPARED
from processors.answering.definitions import names_in
from processors.answering.query_text import searchable
from processors.answering.query_vectors import Vectors
from store.types import SearchRequest, Subject

__all__ = ["all_candidates", "first_candidates", "request_of"]

CANDIDATES = 100
"""Fewest chunks that each retriever is asked for."""

FIRST_CANDIDATES = 40
"""Fewest chunks that the only retriever of a question is asked for at first.

Its best chunks are the same, and usually enough for an answer. Not fewer than ``JOINED_CHUNKS``.
"""

CANDIDATES_PER_RESULT = 4
"""Chunks that it is asked for at first for each result, as several may be parts of one."""

_NO_FILTERS = Filters()


def all_candidates(query: Query) -> int:
    """Return the number of chunks that each retriever is asked for."""
    return max(CANDIDATES, query.limit)


def first_candidates(query: Query) -> int:
    """Return the number of chunks that each retriever is asked for at first."""
    few = max(FIRST_CANDIDATES, CANDIDATES_PER_RESULT * query.limit)
    return min(few, all_candidates(query)) if _needs_few(query) else all_candidates(query)


def request_of(
    query: Query, vectors: Vectors, subject: Subject | None, candidates: int
) -> SearchRequest:
    """Return the request for so many candidates of each retriever."""
    defined = [name for names in names_in(query.text) for name in names.wanted]
    return SearchRequest(
        project=query.project,
        agent=query.agent,
        text=None if query.mode == "vector" else searchable(query.text),
        vectors=vectors,
        filters=query.filters,
        candidates=candidates,
        compared=query.min_similarity is not None,
        defined=tuple(dict.fromkeys(defined)),
        subject=subject,
        described=COMPARED if query.mode == "hybrid" else 0,
    )


def _needs_few(query: Query) -> bool:
    """Return whether the best results of a question do not depend on further candidates.

    An index scan with filters goes on until it has all candidates, and finds better ones then. The
    definitions of a name are among the candidates, or ranked as the last of them.
    """
    is_single = query.mode != "hybrid" and query.overlay is None and query.filters == _NO_FILTERS
    is_plain = query.group == "chunk" and not query.diversity and query.min_similarity is None
    return is_single and is_plain and not query.sections and not names_in(query.text)
