"""Assembly of results with citations, and of a context that fits a token budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import accumulate
from urllib.parse import quote

from content.places import rendered
from events.models import (
    Citation,
    Kind,
    PageBox,
    Query,
    RetrieverScore,
    Scores,
    SearchResult,
    Span,
    TermMatch,
)
from processors.answering.fusion import Fused
from runtime.traces import staged
from store.generations.catalog import Generation
from store.search.exact import Passage
from store.search.keyword.spans import places_of
from store.search.keyword.tokenizer import terms
from store.search.keyword.writer import about_chunk, about_document
from store.search.search import Search
from store.types import ChunkRow

__all__ = ["Assembler", "permalink"]

CountTokens = Callable[[Sequence[str]], list[int]]


class Assembler:
    """Fetches the chunks of an answer and cites the source of each."""

    def __init__(self, search: Search, count_tokens: CountTokens) -> None:
        self._search = search
        self._count_tokens = count_tokens

    @staged("assemble")
    async def assemble(
        self,
        query: Query,
        ranked: Sequence[Fused],
        generation: Generation,
        term_weights: Mapping[str, float] = {},
    ) -> tuple[tuple[SearchResult, ...], str | None]:
        """Return results in rank order, and the context, or None if the query asks for none.

        A chunk that was deleted since it was retrieved is left out. ``term_weights``: weights of
        the terms that an explanation looks for in each chunk.
        """
        ids = [chunk.chunk_id for chunk in ranked]
        rows = await self._search.rows(generation, query.agent, ids)
        contexts: Mapping[int, str] = {}
        if query.explain and generation.recipe.context:
            contexts = await self._search.contexts(generation, query.agent, ids)
        results = tuple(
            _result(
                rows[chunk.chunk_id],
                chunk,
                term_weights if query.explain else None,
                contexts.get(chunk.chunk_id, ""),
            )
            for chunk in ranked
            if chunk.chunk_id in rows
        )
        if query.context_tokens is None:
            return results, None
        return results, self._context(results, query.context_tokens)

    @staged("assemble")
    async def assemble_lines(
        self, query: Query, passages: Sequence[Passage], generation: Generation
    ) -> tuple[tuple[SearchResult, ...], str | None]:
        """Return a result for each passage of an exact search, and the context as ``assemble``."""
        ids = [passage.chunk_id for passage in passages]
        rows = await self._search.rows(generation, query.agent, ids)
        results = tuple(
            _lines_result(rows[passage.chunk_id], passage, query.text)
            for passage in passages
            if passage.chunk_id in rows
        )
        if query.context_tokens is None:
            return results, None
        return results, self._context(results, query.context_tokens)

    def _context(self, results: Sequence[SearchResult], budget_tokens: int) -> str:
        """Join whole chunks in rank order, each under its citation, that fit the budget."""
        passages = [_passage(number, result) for number, result in enumerate(results, 1)]
        selected: list[str] = []
        for passage, tokens in zip(passages, self._count_tokens(passages), strict=True):
            if tokens <= budget_tokens:
                budget_tokens -= tokens
                selected.append(passage)
        return "\n\n".join(selected)


def _passage(number: int, result: SearchResult) -> str:
    citation = result.citation
    return f"[{number}] {citation.place}\n{result.rendered or result.content}"


def _result(
    row: ChunkRow, fused: Fused, explained: Mapping[str, float] | None, context: str
) -> SearchResult:
    scores = Scores(
        vector=fused.vector, keyword=fused.keyword, fused=fused.score, reranked=fused.reranked
    )
    readable = rendered(row.content, row.locator)
    return SearchResult(
        chunk_id=row.chunk_id,
        content=row.content,
        rendered=readable if readable != row.content else None,
        kind=Kind(row.kind),
        title=row.title,
        language=row.language,
        citation=_citation(row),
        scores=scores,
        match_type=fused.match_type,
        metadata=dict(row.metadata),
        explanation=None if explained is None else _explanation(scores, context, fused.defines),
        matches=None if explained is None else _matches(row, explained, context),
    )


def _lines_result(row: ChunkRow, passage: Passage, pattern: str) -> SearchResult:
    """Result with the lines of a passage alone."""
    texts = [line.text for line in passage.lines]
    starts = accumulate((len(text) + 1 for text in texts), initial=0)
    spans = tuple(
        Span(start=offset + start, end=offset + end)
        for offset, line in zip(starts, passage.lines, strict=False)
        for start, end in line.spans or ()
    )
    lines = replace(
        row,
        content="\n".join(texts),
        start_line=passage.lines[0].number,
        end_line=passage.lines[-1].number,
    )
    return SearchResult(
        chunk_id=row.chunk_id,
        content=lines.content,
        kind=Kind(row.kind),
        title=row.title,
        language=row.language,
        citation=_citation(lines),
        scores=Scores(fused=1.0),
        match_type="exact",
        matching_lines=passage.matching_lines,
        metadata=dict(row.metadata),
        matches=(TermMatch(term=pattern, weight=1.0, spans=spans),),
    )


def _matches(row: ChunkRow, weights: Mapping[str, float], context: str) -> tuple[TermMatch, ...]:
    """Terms that a chunk is found by, the rarest first."""
    places = places_of(row.content, weights)
    about = [
        about_document(row.uri, row.title),
        about_chunk(row.symbol, row.heading_path, context),
        row.surroundings,
    ]
    occurring = places.keys() | {term for text in about for term in terms(text)}
    return tuple(
        TermMatch(
            term=term,
            weight=weight,
            spans=tuple(Span(start=start, end=end) for start, end in places.get(term, ())),
        )
        for term, weight in sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))
        if term in occurring
    )


def _citation(row: ChunkRow) -> Citation:
    locator = row.locator or {}
    return Citation(
        uri=row.uri,
        start_line=row.start_line,
        end_line=row.end_line,
        page=row.page,
        pages=tuple(_page_box(box) for box in locator.get("pages", ())),
        fragment=locator.get("fragment"),
        speakers=tuple(locator.get("speakers", ())),
        times=tuple(map(datetime.fromisoformat, locator.get("times", ()))),
        symbol=row.symbol,
        heading_path=row.heading_path,
        commit=row.commit,
        permalink=permalink(row),
    )


def _lines(row: ChunkRow) -> tuple[int, int]:
    """First and last line in the original where it is text, else in the extracted text."""
    lines = (row.locator or {}).get("lines")
    return (row.start_line, row.end_line) if lines is None else (lines[0], lines[1])


def _page_box(box: Sequence[float]) -> PageBox:
    page, left, bottom, right, top = box
    return PageBox(page=int(page), left=left, bottom=bottom, right=right, top=top)


def permalink(row: ChunkRow) -> str | None:
    """Fill the document's permalink template with the place of a chunk.

    Without a template, it is the address that the document itself gives for the place: that of a
    message in the export of a chat. A template takes precedence, since its publisher is known. The
    placeholders are ``{commit}``, ``{path}``, ``{start}``, ``{end}`` and ``{fragment}``.
    """
    if row.permalink_template is None:
        return (row.locator or {}).get("permalink")
    start_line, end_line = _lines(row)
    fragment = (row.locator or {}).get("fragment", "")
    values = {
        "{commit}": quote(row.commit or "HEAD", safe=""),
        "{path}": quote(row.uri),
        "{start}": str(start_line),
        "{end}": str(end_line),
        "{fragment}": quote(fragment, safe="=&!:,-"),
    }
    link = row.permalink_template
    for placeholder, value in values.items():
        link = link.replace(placeholder, value)
    return link


def _explanation(scores: Scores, context: str, defines: str | None) -> str:
    parts = [
        *([] if defines is None else [f"defines {defines}"]),
        _describe_retriever("meaning", "cosine", scores.vector),
        _describe_retriever("words", "BM25", scores.keyword),
        f"together {scores.fused:.3f}",
    ]
    if scores.reranked is not None:
        parts.append(f"relevance {scores.reranked:.3f}")
    if context:
        parts.append(f"context: {context}")
    return "; ".join(parts)


def _describe_retriever(name: str, unit: str, retriever_score: RetrieverScore | None) -> str:
    if retriever_score is None:
        return f"{name}: not among the candidates"
    return f"{name}: rank {retriever_score.rank} ({unit} {retriever_score.score:.3f})"
