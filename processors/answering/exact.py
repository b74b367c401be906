"""Answers of the mode ``exact``: the lines that match a pattern, in path order.

No model and no ranking takes part, so an answer does not depend on vectors.
"""

from __future__ import annotations

from typing import Any

from events.models import ExactCounts, Query
from processors.answering.results import Assembler
from runtime.traces import staged
from store.generations.catalog import Generation
from store.search.exact import ExactMatches
from store.search.lines import Place
from store.search.patterns import Pattern
from store.search.search import Search

__all__ = ["answer_exactly"]


async def answer_exactly(
    search: Search, assembler: Assembler, query: Query, generation: Generation
) -> tuple[dict[str, Any], bool]:
    """Return the fields of an answer that an exact search decides.

    The second value is False if the generation may have been replaced or dropped.

    Raises:
        UsageError: the pattern is wrong or not safe, or ``after`` is not a place.
        Unavailable: Postgres cannot be reached.
    """
    matches = await _matches(search, query, generation)
    results, context = await assembler.assemble_lines(query, matches)
    counts = ExactCounts(
        matches=matches.matches,
        files=matches.files,
        truncated=matches.truncated,
        searched_to=matches.searched_to if matches.truncated else None,
        next=matches.next.token() if matches.next else None,
    )
    fields = {
        "results": results,
        "context": context,
        "searched_chunks": matches.chunks,
        "exact": counts,
    }
    return fields, matches.is_live


@staged("search")
async def _matches(search: Search, query: Query, generation: Generation) -> ExactMatches:
    pattern = Pattern.parse(
        query.text,
        regex=query.regex,
        ignore_case=query.ignore_case,
        whole_words=query.whole_words,
    )
    return await search.exact(
        generation,
        query.agent,
        pattern,
        query.filters,
        limit=query.limit,
        after=None if query.after is None else Place.of_token(query.after),
        context=query.context_lines,
        per_file=query.per_file,
    )
