"""Assembly of results with citations, and of the context if a question asks for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import Any
from urllib.parse import quote

from content.places import rendered
from events.models import (
    Citation,
    Kind,
    OtherMatch,
    PageBox,
    Query,
    RetrieverScore,
    Scores,
    SearchResult,
    SourceLines,
    Span,
    TermMatch,
)
from processors.answering.context_builder import Block, ContextBuilder
from processors.answering.definition_list import Definition
from processors.answering.fusion import Fused, RankedScore
from processors.answering.passage_texts import PassageText, texts_of
from processors.answering.sections import has_sections, section_of
from processors.answering.units import Passage
from processors.chunking.types import CountTokens
from runtime import protocol_limits
from runtime.traces import staged
from store.generations.catalog import Generation
from store.search import exact
from store.search.keyword.spans import places_of
from store.search.keyword.tokenizer import terms
from store.search.keyword.writer import about_chunk, about_document
from store.search.search import Search
from store.types import ChunkRow

__all__ = ["Assembled", "Assembler", "permalink"]


@dataclass(frozen=True, slots=True)
class Assembled:
    """Results in rank order, and the context if the query asks for one.

    ``is_complete`` is false if a passage is missing because its best chunk was deleted.
    """

    results: tuple[SearchResult, ...]
    context: str | None
    is_complete: bool


class Assembler:
    """Fetches the passages of an answer and cites the source of each."""

    def __init__(self, search: Search, count_tokens: CountTokens) -> None:
        self._search = search
        self._context_builder = ContextBuilder(count_tokens)

    @staged("assemble")
    async def assemble(
        self,
        query: Query,
        passages: Sequence[Passage],
        generation: Generation,
        term_weights: Mapping[str, float] = {},
    ) -> Assembled:
        """Return results for passages.

        A passage whose best chunk was deleted since it was ranked is left out. ``term_weights``:
        weights of the terms that an explanation looks for in each passage.

        Raises:
            UsageError: the query names a tokenizer that does not exist.
        """
        has_context = query.context_tokens is not None
        others = [other for passage in passages for other in passage.others if has_context]
        texts = await texts_of(self._search, generation, query.agent, [*passages, *others])
        contexts: Mapping[int, str] = {}
        if query.explain and generation.recipe.context:
            ids = [passage.best.chunk_id for passage in passages]
            contexts = await self._search.contexts(generation, query.agent, ids)
        text_of = {text.row.chunk_id: text for text in texts}
        shown = [
            text for passage in passages if (text := text_of.get(passage.best.chunk_id)) is not None
        ]
        results = tuple(
            _result(text, query, term_weights, contexts.get(text.row.chunk_id, ""))
            for text in shown
        )
        context = None
        if query.context_tokens is not None:
            context = await self._context_builder.build(
                _blocks(shown, text_of, by_section=has_sections(query)),
                query.context_tokens,
                query.context_tokenizer,
            )
        return Assembled(results, context, 0 < len(results) == len(passages))

    @staged("assemble")
    async def assemble_lines(
        self, query: Query, matches: exact.ExactMatches
    ) -> tuple[tuple[SearchResult, ...], str | None]:
        """Return a result for each passage of an exact search, and the context as ``assemble``."""
        rows = [matches.rows[passage.chunk_id] for passage in matches.passages]
        results = tuple(
            _lines_result(row, passage, query.text)
            for row, passage in zip(rows, matches.passages, strict=True)
        )
        document_ids = [row.document_id for row in rows]
        return results, await self._context_of(query, results, document_ids)

    @staged("assemble")
    async def assemble_definitions(
        self, query: Query, groups: Sequence[Sequence[Definition]]
    ) -> tuple[tuple[SearchResult, ...], str | None]:
        """Return a result for each group of definitions, and the context as ``assemble``.

        The first definition of a group is shown, and the others are its other matches.
        """
        results = tuple(_definition_result(group, query) for group in groups)
        document_ids = [group[0].row.document_id for group in groups]
        return results, await self._context_of(query, results, document_ids)

    async def _context_of(
        self, query: Query, results: Sequence[SearchResult], document_ids: Sequence[int]
    ) -> str | None:
        """Context of results that are lines of their documents, if the query asks for one."""
        if query.context_tokens is None:
            return None
        blocks = [
            Block(
                label=str(number),
                document_id=document_id,
                uri=result.citation.uri,
                ordinals=range(0),
                start_line=result.citation.start_line,
                end_line=result.citation.end_line,
                place=result.citation.place,
                text=result.rendered or result.content,
            )
            for number, (document_id, result) in enumerate(
                zip(document_ids, results, strict=True), start=1
            )
        ]
        return await self._context_builder.build(
            blocks, query.context_tokens, query.context_tokenizer
        )


def _blocks(
    shown: Sequence[PassageText], text_of: Mapping[int, PassageText], *, by_section: bool
) -> list[Block]:
    """Blocks of results and of their other matches, by rank; sections take turns."""
    counts: Counter[str] = Counter()
    labelled: list[tuple[str, PassageText]] = []
    for best in shown:
        section = section_of(best.row.kind) if by_section else ""
        counts[section] += 1
        label = f"{section} {counts[section]}".lstrip()
        labelled += [
            (label, text)
            for passage in (best.passage, *best.passage.others)
            if (text := text_of.get(passage.best.chunk_id)) is not None
        ]
    labelled.sort(key=lambda pair: pair[1].passage.rank)
    return [_block(label, text) for label, text in labelled]


def _block(label: str, text: PassageText) -> Block:
    row = text.row
    within = [signature.text for signature in text.signatures]
    return Block(
        label=label,
        document_id=row.document_id,
        uri=row.uri,
        ordinals=text.ordinals,
        start_line=row.start_line,
        end_line=row.end_line,
        place=_citation(row).place,
        text=rendered(row.content, row.locator),
        within="\n".join([*within, "…"]) if within else "",
        has_lines=row.locator is None and row.kind != Kind.CODE_EXAMPLE,
    )


def _result(
    text: PassageText, query: Query, term_weights: Mapping[str, float], context: str
) -> SearchResult:
    row, fused = text.row, text.passage.best
    scores = Scores(
        vector=_retriever_score(fused.vector),
        keyword=_retriever_score(fused.keyword),
        fused=fused.score,
        reranked=fused.reranked,
    )
    readable = rendered(row.content, row.locator)
    definition = tuple(SourceLines(start_line=at, text=lines) for at, lines in text.signatures)
    others = text.passage.others[: protocol_limits.OTHER_MATCHES]
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
        explanation=_explanation(scores, context, fused) if query.explain else None,
        matches=_matches(row, term_weights, context) if query.explain else None,
        chunk_ids=text.chunk_ids if len(text.chunk_ids) > 1 else None,
        definition=definition or None,
        other_matches=tuple(map(_other_match, others)) or None,
        document_score=fused.score if query.group == "document" else None,
        section=section_of(row.kind) if has_sections(query) else None,
    )


def _retriever_score(score: RankedScore | None) -> RetrieverScore | None:
    return None if score is None else RetrieverScore(rank=score.rank, score=score.score)


def _other_match(passage: Passage) -> OtherMatch:
    place = passage.places[passage.best.chunk_id]
    start_line, end_line = passage.lines
    return OtherMatch(
        chunk_id=passage.best.chunk_id,
        start_line=start_line,
        end_line=end_line,
        page=place.page,
        symbol=place.symbol,
        heading_path=tuple(place.heading_path),
        score=passage.best.score,
    )


def _lines_result(row: ChunkRow, passage: exact.Passage, pattern: str) -> SearchResult:
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
    match = TermMatch(
        term=pattern,
        weight=1.0,
        spans=spans,
        unmarked=sum(line.unmarked for line in passage.lines) or None,
    )
    return _exact_result(lines, match, matching_lines=passage.matching_lines)


def _definition_result(group: Sequence[Definition], query: Query) -> SearchResult:
    """Result with the lines of a definition alone, and the places of the others."""
    [first, *others] = group
    row = first.row
    start = row.content.find(first.name)
    spans = (Span(start=start, end=start + len(first.name)),) if start >= 0 else ()
    other_matches = tuple(
        OtherMatch(
            chunk_id=other.row.chunk_id,
            start_line=other.row.start_line,
            end_line=other.row.end_line,
            symbol=other.row.symbol,
            score=1.0,
        )
        for other in others[: protocol_limits.OTHER_MATCHES]
    )
    return _exact_result(
        row,
        TermMatch(term=first.name, weight=1.0, spans=spans),
        other_matches=other_matches or None,
        document_score=1.0 if query.group == "document" else None,
    )


def _exact_result(row: ChunkRow, match: TermMatch, **fields: Any) -> SearchResult:
    """Result without ranking, whose text has a term at some places."""
    return SearchResult(
        chunk_id=row.chunk_id,
        content=row.content,
        kind=Kind(row.kind),
        title=row.title,
        language=row.language,
        citation=_citation(row),
        scores=Scores(fused=1.0),
        match_type="exact",
        metadata=dict(row.metadata),
        matches=(match,),
        **fields,
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
    return link.removesuffix("#")


def _explanation(scores: Scores, context: str, fused: Fused) -> str:
    parts = [
        *([] if fused.defines is None else [f"defines {fused.defines}"]),
        _describe_retriever("meaning", "cosine", scores.vector),
        _describe_retriever("words", "BM25", scores.keyword),
        *fused.adjusted,
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
