"""Definitions of symbols, cut out of the chunks that have them.

A chunk may have other units beside a definition, and a definition may have several chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from content.signatures import definitions_of, names_in, symbols_of
from processors.answering.units import PASSAGE_TOKENS
from store.documents.text import TextPart, joined_lines
from store.types import ChunkRow

__all__ = ["Definition", "definitions_in"]


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition of ``name``: its chunk with the lines of the definition alone."""

    row: ChunkRow
    name: str


def definitions_in(rows: Sequence[ChunkRow], symbols: Sequence[str]) -> list[Definition]:
    """Return the definitions of symbols in chunks that pass them as filters, in their order.

    The parts of one that is cut are joined up to the size of a passage; those behind are left out.
    A chunk in which the definition is not recognised is shown as a whole, if nothing else in its
    document defines the name.
    """
    return [
        definition
        for _, chunks in groupby(rows, key=attrgetter("document_id"))
        for definition in _of_document(_joined(chunks), symbols)
    ]


def _joined(chunks: Iterable[ChunkRow]) -> list[ChunkRow]:
    """Join chunks of one document that are parts of one unit; each has the ordinal of its last."""
    joined: list[ChunkRow] = []
    for chunk in chunks:
        before = joined[-1] if joined else None
        if before is None or not _continues(before, chunk):
            joined.append(chunk)
            continue
        parts = [TextPart(row.start_line, row.end_line, row.content) for row in (before, chunk)]
        joined[-1] = replace(
            before,
            content="\n".join(joined_lines(parts, before.start_line)),
            end_line=chunk.end_line,
            tokens=before.tokens + chunk.tokens,
            ordinal=chunk.ordinal,
        )
    return joined


def _continues(before: ChunkRow, chunk: ChunkRow) -> bool:
    return (
        chunk.symbol == before.symbol
        and chunk.symbol is not None
        and chunk.ordinal == before.ordinal + 1
        and before.tokens + chunk.tokens <= PASSAGE_TOKENS
    )


def _of_document(chunks: Sequence[ChunkRow], symbols: Sequence[str]) -> list[Definition]:
    found: dict[int, Definition] = {}
    for symbol in symbols:
        own = [definition for chunk in chunks for definition in _of_chunk(chunk, symbol)]
        name = names_in(symbol)[-1]
        if not own:
            named = (chunk for chunk in chunks if _symbols_of(chunk, name))
            own = [Definition(chunk, name) for chunk in named][:1]
        found |= {each.row.start_line: each for each in own}
    return [found[line] for line in sorted(found)]


def _of_chunk(chunk: ChunkRow, symbol: str) -> Iterator[Definition]:
    name = names_in(symbol)[-1]
    named = ", ".join(_symbols_of(chunk, name)) or chunk.symbol
    for line, text in definitions_of(chunk.content, symbol, chunk.start_line):
        end_line = line + text.count("\n")
        row = replace(chunk, content=text, start_line=line, end_line=end_line, symbol=named)
        yield Definition(row, name)


def _symbols_of(chunk: ChunkRow, name: str) -> list[str]:
    """Symbols of the chunk that end in a name."""
    symbols = symbols_of(chunk.symbol)
    return [symbol for symbol in symbols if names_in(symbol)[-1] == name]
