"""Texts of passages: the joined lines of their chunks, and the signature of their unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from content.places import united
from content.signatures import Signature, is_defined_in, owners_of, signature_of, symbols_of
from processors.answering.units import Passage
from store.documents.text import TextPart, joined_lines
from store.generations.catalog import Generation
from store.search.search import Neighbours, Search, UnitBeginning
from store.types import ChunkPart, ChunkRow

__all__ = ["PassageText", "texts_of"]

_LONGEST_SYMBOL = 200
_MOST_SIGNATURES = 3
"""Lines around a passage that are shown: those of its function, and of the two nearest owners."""


@dataclass(frozen=True, slots=True)
class PassageText:
    """A passage with its text: ``row`` is its best chunk, with the text and place of the whole.

    ``chunk_ids`` are those of all its chunks, in the order of the text. ``signatures`` are those of
    the units around its first line, outermost first, unless the text itself has them.
    """

    passage: Passage
    row: ChunkRow
    chunk_ids: tuple[int, ...]
    signatures: tuple[Signature, ...] = ()

    @property
    def ordinals(self) -> range:
        """Ordinals of its chunks."""
        first = self.row.ordinal
        return range(first, first + len(self.chunk_ids))


async def texts_of(
    search: Search, generation: Generation, agent: str | None, passages: Sequence[Passage]
) -> list[PassageText]:
    """Return the texts of passages, in their order; those without their best chunk are left out.

    A passage whose chunks changed since they were ranked consists of its best chunk alone.
    """
    chunk_ids = [chunk_id for passage in passages for chunk_id in passage.chunk_ids]
    gaps = {
        (place.document_id, ordinal)
        for passage in passages
        if passage.has_gap
        for place in list(passage.places.values())[:1]
        for ordinal in passage.ordinals
        if all(other.ordinal != ordinal for other in passage.places.values())
    }
    beginnings: dict[int, list[UnitBeginning]] = {}

    def needed(rows: Mapping[int, ChunkRow]) -> Neighbours:
        beginnings.update(
            (passage.best.chunk_id, _beginnings(passage, rows)) for passage in passages
        )
        units = {unit for group in beginnings.values() for unit in group}
        return Neighbours(sorted(gaps), sorted(units))

    rows, parts = await search.rows_and_parts(generation, agent, chunk_ids, needed)
    between = {(part.document_id, part.ordinal): part for part in parts}
    return [
        _with_signatures(_joined(passage, rows, between), beginnings[passage.best.chunk_id], parts)
        for passage in passages
        if passage.best.chunk_id in rows
    ]


def _joined(
    passage: Passage,
    rows: Mapping[int, ChunkRow],
    between: Mapping[tuple[int, int], ChunkPart],
) -> PassageText:
    best = rows[passage.best.chunk_id]
    chunks: list[ChunkRow | ChunkPart] = [rows[at] for at in passage.chunk_ids if at in rows]
    ordinals = {chunk.ordinal for chunk in chunks}
    chunks += [
        part
        for ordinal in passage.ordinals
        if ordinal not in ordinals
        and (part := between.get((best.document_id, ordinal))) is not None
    ]
    chunks.sort(key=lambda chunk: chunk.ordinal)
    if len(chunks) < 2 or len(chunks) < len(passage.ordinals) or not _are_neighbours(chunks):
        return PassageText(passage, best, (best.chunk_id,))
    text_parts = [TextPart(chunk.start_line, chunk.end_line, chunk.content) for chunk in chunks]
    locator = united([chunk.locator for chunk in chunks])
    whole = replace(
        best,
        ordinal=chunks[0].ordinal,
        content="\n".join(joined_lines(text_parts, chunks[0].start_line)),
        start_line=chunks[0].start_line,
        end_line=chunks[-1].end_line,
        page=best.page if locator is None else locator.get("page", best.page),
        locator=locator,
        symbol=_symbol(chunks, best),
        heading_path=_common([chunk.heading_path for chunk in chunks]),
        tokens=sum(chunk.tokens for chunk in chunks),
    )
    return PassageText(passage, whole, tuple(chunk.chunk_id for chunk in chunks))


def _are_neighbours(chunks: Sequence[ChunkRow | ChunkPart]) -> bool:
    """Return whether chunks follow each other; each was read as it is in its own snapshot."""
    return all(
        second.ordinal == first.ordinal + 1
        and second.document_id == first.document_id
        and second.start_line >= first.end_line
        for first, second in pairwise(chunks)
    )


def _symbol(chunks: Sequence[ChunkRow | ChunkPart], best: ChunkRow) -> str | None:
    """Names of the units in a passage of code, and the symbol of the best chunk of another."""
    if best.kind != "code":
        return best.symbol
    names = dict.fromkeys(name for chunk in chunks for name in symbols_of(chunk.symbol))
    symbol = ""
    for name in names:
        longer = f"{symbol}, {name}" if symbol else name
        if len(longer) > _LONGEST_SYMBOL:
            break
        symbol = longer
    return symbol or None


def _common(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Longest path with which all begin."""
    shared = paths[0]
    for path in paths[1:]:
        count = next(
            (at for at, pair in enumerate(zip(shared, path, strict=False)) if pair[0] != pair[1]),
            min(len(shared), len(path)),
        )
        shared = shared[:count]
    return shared


def _beginnings(passage: Passage, rows: Mapping[int, ChunkRow]) -> list[UnitBeginning]:
    """Units that a passage may begin within, outermost first, by its first chunk.

    There is none if the chunk is the first of its document, or has parts of several units; or if
    one of its chunks has the signature of its unit.
    """
    first = next(iter(passage.places.values()), None)
    names = symbols_of(first.symbol) if first is not None and first.is_code else ()
    if first is None or len(names) != 1 or first.ordinal == 0 or first.is_example:
        return []
    [name] = names
    contents = (rows[chunk_id].content for chunk_id in passage.chunk_ids if chunk_id in rows)
    if any(is_defined_in(content, name) for content in contents):
        return []
    owners = owners_of(name)
    separator = owners[-1][1][len(owners[-1][0]) :] if owners else "."
    units = [*owners, (name, f"{name}{separator}")][-_MOST_SIGNATURES:]
    return [UnitBeginning(first.document_id, first.ordinal, *unit) for unit in units]


def _with_signatures(
    text: PassageText, beginnings: Sequence[UnitBeginning], parts: Sequence[ChunkPart]
) -> PassageText:
    """Add the signatures of the units that a text begins within, unless it has its own.

    One that has beginnings has none in any single chunk.
    """
    is_joined = len(text.chunk_ids) > 1
    if not beginnings or (is_joined and is_defined_in(text.row.content, beginnings[-1].name)):
        return text
    return replace(text, signatures=_signatures(beginnings, parts))


def _signatures(
    beginnings: Sequence[UnitBeginning], parts: Sequence[ChunkPart]
) -> tuple[Signature, ...]:
    """Signatures of units, without those that were not found: the nearest of the innermost unit.

    A unit may have several definitions of one name, such as overloads.
    """
    signatures: dict[int, Signature] = {}
    in_order = sorted(parts, key=lambda part: part.ordinal)
    for beginning in beginnings:
        above = [
            part
            for part in in_order
            if part.document_id == beginning.document_id and part.ordinal < beginning.ordinal
            if beginning.name in symbols_of(part.symbol)
            or (part.symbol or "").startswith(beginning.prefix)
        ]
        if beginning is beginnings[-1]:
            above.reverse()
        for part in above:
            signature = signature_of(part.content, beginning.name, part.start_line)
            if signature is not None:
                signatures.setdefault(signature.line, signature)
                break
    return tuple(signature for _, signature in sorted(signatures.items()))
