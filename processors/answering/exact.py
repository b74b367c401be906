"""Answers of the mode ``exact``: lines that match a pattern, or definitions, in path order.

No model and no ranking takes part, so an answer does not depend on vectors.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from events.models import ExactCounts, Query
from processors.answering.definition_list import definitions_in
from processors.answering.results import Assembler
from runtime.traces import staged
from store.generations.catalog import Generation
from store.search.exact import ExactMatches
from store.search.lines import Place
from store.search.patterns import Pattern
from store.search.search import Search

__all__ = ["answer_exactly"]

_CHUNKS_PER_RESULT = 40
"""Chunks that a list of definitions reads for each result that is wanted."""


async def answer_exactly(
    search: Search, assembler: Assembler, query: Query, generation: Generation
) -> tuple[dict[str, Any], bool]:
    """Return the fields of an answer that an exact search decides.

    A query without a text is for the definitions of the symbols in its filters.

    The second value is False if the generation may have been replaced or dropped.

    Raises:
        UsageError: the pattern is wrong or not safe, or ``after`` is not a place.
        Unavailable: Postgres cannot be reached.
    """
    if not query.text:
        return await _list_definitions(search, assembler, query, generation)
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


async def _list_definitions(
    search: Search, assembler: Assembler, query: Query, generation: Generation
) -> tuple[dict[str, Any], bool]:
    most = _CHUNKS_PER_RESULT * query.limit
    rows, is_live = await search.definitions(generation, query.agent, query.filters, most)
    found = definitions_in(rows, query.filters.symbols)
    by_document = [[*own] for _, own in groupby(found, key=lambda each: each.row.document_id)]
    groups = by_document if query.group == "document" else [[each] for each in found]
    results, context = await assembler.assemble_definitions(query, groups[: query.limit])
    is_truncated = len(rows) == most
    counts = ExactCounts(
        matches=len(found),
        files=len(by_document),
        truncated=is_truncated,
        searched_to=rows[-1].uri if is_truncated else None,
    )
    fields = {
        "results": results,
        "context": context,
        "searched_chunks": len(rows),
        "exact": counts,
    }
    return fields, is_live
