"""Screens of documents: the list with its filters, and one document line by line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from events.models import DOCUMENT_KINDS
from gateway.web.highlights import Line, highlighted
from gateway.web.presentation import address, outside_link
from gateway.web.visits import Problem, Visit
from runtime.errors import HeadraceError, NotFound
from store.views.listing import ChangeRow, ChunkRow

__all__ = ["show_document", "show_list"]

_PAGE = 50
_LINES = 600
_CHUNKS = 200
_CHANGES = 20
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_KINDS = tuple(kind.value for kind in DOCUMENT_KINDS)


@dataclass(frozen=True, slots=True)
class _Row:
    """A line with its chunk: ``band`` alternates from chunk to chunk; ``chunk`` begins here."""

    line: Line
    marked: bool
    band: int
    chunk: ChunkRow | None


async def show_list(visit: Visit) -> Response:
    """List the documents after a uri, with filters."""
    filters = {name: visit.parameter(name) for name in ("under", "kind", "collection", "source")}
    after = visit.parameter("after")
    rows = await visit.listing.documents(
        visit.project,
        visit.caller.agent,
        under=filters["under"] or None,
        kind=filters["kind"] or None,
        collection=filters["collection"] or None,
        source=filters["source"] or None,
        after=after or None,
        limit=_PAGE + 1,
    )
    shown = rows[:_PAGE]
    return visit.render(
        "documents.html",
        rows=shown,
        filters=filters,
        after=after,
        filtered=any(filters.values()),
        kinds=_KINDS,
        collections=await visit.remembered("collections", visit.read_collections),
        sources=await visit.listing.sources(visit.project, visit.caller.agent),
        first=address("/documents", project=visit.project, **filters),
        following=address("/documents", project=visit.project, **filters, after=shown[-1].cursor)
        if len(rows) > _PAGE
        else None,
    )


async def show_document(visit: Visit) -> Response:
    """Show one document: its lines with their chunks, its metadata, and its former changes."""
    uri = visit.request.query_params.get("uri", "")
    try:
        document = await visit.listing.document(visit.project, visit.caller.agent, uri)
    except NotFound as error:
        changes = await _changes(visit, uri)
        problem = Problem.of(error)
        return visit.render(
            "document_missing.html", problem.status, problem=problem, uri=uri, changes=changes
        )
    marked = _range(visit.parameter("lines"))
    first = _first(visit, marked)
    text = await visit.listing.lines(
        visit.project, visit.caller.agent, uri, first=first, last=first + _LINES - 1
    )
    chunks = await visit.listing.chunks(
        visit.project, visit.caller.agent, uri, after=0, limit=_CHUNKS
    )
    lines = highlighted(text.text, uri, document.kind, first=text.first)

    def page(at: int) -> str:
        return address("/document", project=visit.project, uri=uri, at=at)

    return visit.render(
        "document.html",
        document=document,
        text=text,
        rows=_rows(lines, marked, [chunk for chunk in chunks if not chunk.is_example]),
        marked=marked,
        chunks=chunks,
        changes=await _changes(visit, uri),
        links={
            name: outside_link(str(value))
            for name, value in document.metadata.items()
            if isinstance(value, str)
        },
        former=page(max(1, first - _LINES)) if first > 1 else None,
        following=page(text.last + 1) if text.last < text.total else None,
    )


async def _changes(visit: Visit, uri: str) -> Sequence[ChangeRow]:
    """Former changes; the document is shown without them if they can't be read."""
    try:
        return await visit.changes(uri=uri, limit=_CHANGES)
    except HeadraceError:
        return []


def _range(text: str) -> tuple[int, int] | None:
    """First and last marked line, from ``41-88`` or ``41``. Returns None if there is no range."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    first = max(1, int(match[1]))
    return first, max(first, int(match[2] or first))


def _first(visit: Visit, marked: tuple[int, int] | None) -> int:
    """First line of the page that shows the marked lines, or that the address names."""
    if marked is not None:
        return (marked[0] - 1) // _LINES * _LINES + 1
    return int(visit.number("at", 1, 1, 10**9))


def _rows(
    lines: Sequence[Line], marked: tuple[int, int] | None, chunks: Sequence[ChunkRow]
) -> list[_Row]:
    starts = {chunk.start_line: chunk for chunk in reversed(chunks)}
    bands = {
        number: at % 2 + 1
        for at, chunk in enumerate(chunks)
        for number in range(chunk.start_line, chunk.end_line + 1)
    }
    return [
        _Row(
            line,
            marked is not None and marked[0] <= line.number <= marked[1],
            bands.get(line.number, 0),
            starts.get(line.number),
        )
        for line in lines
    ]
