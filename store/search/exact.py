"""Exact search: finds the lines that match a pattern, in path order, within bounds.

Postgres matches the texts, so that they do not travel. Terms that each match has narrow the chunks
by the keyword index; other patterns scan the documents. Both run in batches of documents, until all
are searched, or the time or the number of chunks is used up.
"""

from __future__ import annotations

import json
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from time import monotonic
from typing import NamedTuple

import asyncpg

from runtime.errors import UsageError
from store.documents.text import TextPart, joined_lines
from store.generations.catalog import Generation
from store.postgres.named_queries import named
from store.postgres.pool import Database
from store.search.filters import Condition, Visibility
from store.search.keyword.retriever import KeywordRetriever, Narrowed
from store.search.keyword.tokenizer import TOKENS_VERSION
from store.search.patterns import Pattern

__all__ = [
    "MOST_CHUNKS",
    "MOST_MILLISECONDS",
    "ExactMatches",
    "ExactSearch",
    "Line",
    "Passage",
    "Place",
]

MOST_MILLISECONDS = 250
"""Time after which a search ends, and is truncated."""

MOST_CHUNKS = 200_000
"""Chunks after which a search ends, and is truncated."""

_COUNTING_SHARE = 0.02
"""Share of the time in which further matches are counted once the passages are found."""

_FIRST_BATCH = 4
_LARGEST_BATCH = 4_096
_BATCH_SECONDS = 0.04
_SMALLEST_TIMEOUT_MS = 5
_MOST_LINES = 20
"""Most matching lines of a passage."""

_LONGEST_LINE = 2_000
"""Characters of a line that are shown."""

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
"""Noncharacters of Unicode: no text that is exchanged has them."""

_LAST_LINE = 2**31 - 1
_AFTER_AGENT = " "
"""A name with this at its end comes after the name, and before all longer ones."""

_QUERIES = named("exact")


class Place(NamedTuple):
    """Line of a document, in the order of a search. Agent '' is that of shared documents."""

    uri: str = ""
    agent: str = ""
    line: int = 0

    def token(self) -> str:
        """Text that ``of_token`` reads."""
        return urlsafe_b64encode(json.dumps(self, ensure_ascii=False).encode()).decode().rstrip("=")

    @classmethod
    def of_token(cls, token: str) -> Place:
        """Inverse of ``token``.

        Raises:
            UsageError: the text is not a token.
        """
        try:
            uri, agent, line = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            place = cls(str(uri), str(agent), int(line))
            place.uri.encode()
        except (ValueError, TypeError):
            place = None
        if place is None or "\0" in place.uri + place.agent or not 0 <= place.line <= _LAST_LINE:
            raise UsageError("`after` is not a place", "use `next` of the answer before")
        return place


class Line(NamedTuple):
    """A line. ``spans``: characters from and to which it matches; None if it does not match."""

    number: int
    text: str
    spans: tuple[tuple[int, int], ...] | None


@dataclass(frozen=True, slots=True)
class Passage:
    """Lines of a document that follow each other, at least one of which matches.

    ``matching_lines`` is None, or the number of them in the document.
    """

    chunk_id: int
    place: Place
    document_id: int
    lines: tuple[Line, ...]
    matching_lines: int | None = None


@dataclass
class ExactMatches:
    """Result of a search.

    ``files``, ``matches``: numbers of documents that match and of matches, in all that was
    searched; ``chunks``: those that were examined. ``truncated``: bounds ended the search, or the
    counting after it, after the document ``searched_to``. ``next``: place after which the passages
    begin that were left out.
    """

    passages: list[Passage] = field(default_factory=list)
    files: int = 0
    matches: int = 0
    chunks: int = 0
    truncated: bool = False
    searched_to: str | None = None
    next: Place | None = None


@dataclass
class _Run:
    """State of one search."""

    pattern: Pattern
    visibility: Visibility
    after: Place
    limit: int
    per_file: bool
    context: int
    seconds: float
    deadline: float = math.inf
    result: ExactMatches = field(default_factory=ExactMatches)
    narrowed: Narrowed | None = None

    @property
    def is_full(self) -> bool:
        return self.result.next is not None


class ExactSearch:
    """Searches one generation."""

    def __init__(self, database: Database, keyword: KeywordRetriever) -> None:
        self._database = database
        self._keyword = keyword

    async def find(
        self,
        generation: Generation,
        pattern: Pattern,
        visibility: Visibility,
        agent: str | None,
        *,
        limit: int,
        after: Place | None = None,
        context: int = 0,
        per_file: bool = False,
        seconds: float = MOST_MILLISECONDS / 1000,
    ) -> ExactMatches:
        """Return up to ``limit`` passages in path order, and the counts of all.

        With ``after``, only what follows this place is searched, and counted until the limit is
        reached. Without, counting goes on for a part of the time. ``context``: lines before and
        after each match. With ``per_file``, only the first passage of each document is returned.
        ``seconds``: bound of time.

        Raises:
            UsageError: Postgres refuses the expression as too complex.
            asyncpg.PostgresError: the server failed.
        """
        run = _Run(pattern, visibility, after or Place(), limit, per_file, context, seconds)
        async with self._database.scope(generation.project_id, agent, generation.id) as connection:
            try:
                words = (*pattern.words, *visibility.words)
                if words and generation.recipe.tokens == TOKENS_VERSION:
                    run.narrowed = await self._keyword.narrowed(connection, visibility, words)
                await _search(connection, run, keep_counting=after is None)
            except asyncpg.QueryCanceledError:
                run.result.truncated = True
            except asyncpg.DataError as error:
                raise UsageError(
                    f"the pattern is too complex: {error}", "make it shorter"
                ) from None
        if run.result.truncated and run.result.next is None:
            run.result.next = run.after
        if context and run.result.passages:
            async with self._database.scope(
                generation.project_id, agent, generation.id
            ) as connection:
                run.result.passages = await _with_context(
                    connection, generation.id, run.result.passages, context
                )
        return run.result


async def _search(connection: asyncpg.Connection, run: _Run, *, keep_counting: bool) -> None:
    """Search batch by batch; ``run.after`` follows what was searched."""
    run.deadline = monotonic() + run.seconds
    size = _FIRST_BATCH
    queue: list[asyncpg.Record] | None = None
    if run.narrowed is not None:
        queue = await _documents(connection, run, "documents_of", *run.narrowed)
        size = max(size, run.limit)  # most of them match
    while True:
        began = monotonic()
        if queue is None:
            batch = await _documents(connection, run, "next_documents", size)
            is_last = len(batch) < size
        else:
            batch, queue = queue[:size], queue[size:]
            is_last = not queue
        if batch:
            was_full = run.is_full
            await _search_batch(connection, run, batch)
            if run.is_full and not was_full:
                run.deadline = min(run.deadline, monotonic() + _COUNTING_SHARE * run.seconds)
        if is_last or (run.is_full and not keep_counting):
            return
        if monotonic() >= run.deadline or run.result.chunks >= MOST_CHUNKS:
            run.result.truncated = True
            return
        time_left = min(_BATCH_SECONDS, run.deadline - monotonic())
        pace = time_left / max(monotonic() - began, 1e-4)
        size = int(min(_LARGEST_BATCH, max(1, size * min(4.0, pace))))


async def _documents(
    connection: asyncpg.Connection, run: _Run, name: str, *wanted: object
) -> list[asyncpg.Record]:
    conditions = run.visibility.of_document(first_parameter=4 + len(wanted))
    if run.visibility.selects_chunks or not conditions.sql:
        conditions = Condition("true", ())
    sql = _QUERIES[name].format(conditions=conditions.sql)
    generation_id = run.visibility.generation_id
    uri, agent, line = run.after
    if line == _LAST_LINE:
        agent += _AFTER_AGENT
    rows: list[asyncpg.Record] = await connection.fetch(
        sql, generation_id, uri, agent, *wanted, *conditions.arguments
    )
    return rows


async def _search_batch(
    connection: asyncpg.Connection, run: _Run, batch: Sequence[asyncpg.Record]
) -> None:
    await _bound(connection, run)
    conditions = run.visibility.of_document(first_parameter=13)
    chosen = run.visibility.selects_chunks and conditions.sql
    result = run.result
    rows = await connection.fetch(
        _QUERIES["passages"].format(conditions=conditions.sql if chosen else "true"),
        run.visibility.generation_id,
        [document["id"] for document in batch],
        run.pattern.sql,
        run.pattern.literal,
        run.visibility.of_examples,
        [chunk_id for document in batch for chunk_id in document["chunk_ids"]]
        if run.narrowed
        else None,
        0 if run.is_full else run.limit + 2,
        _OPEN,
        _CLOSE,
        run.per_file,
        run.after.line if Place(batch[0]["uri"], batch[0]["agent"])[:2] == run.after[:2] else 0,
        run.pattern.is_literal,
        *(conditions.arguments if chosen else ()),
    )
    result.chunks += rows[0]["chunks"]
    hits = (row for row in rows if row["place"] is not None)
    for number, of_document in groupby(hits, key=itemgetter("place")):
        document = batch[number - 1]
        _take(run, document["id"], Place(document["uri"], document["agent"]), list(of_document))
    last = batch[-1]
    run.after = Place(last["uri"], last["agent"], _LAST_LINE)
    result.searched_to = last["uri"]


def _take(run: _Run, document_id: int, place: Place, rows: Sequence[asyncpg.Record]) -> None:
    """Count the matches of a document, and add its passages until there are enough."""
    result = run.result
    first = run.after.line + 1 if place[:2] == run.after[:2] else 1
    with_text = [row for row in rows if row["text"] is not None]
    lines = [
        (row["chunk_id"], line)
        for row in with_text
        for line in _matching_lines(row["text"], row["start_line"])
        if line.number >= first
    ]
    if run.is_full or first == 1:
        matches = sum(row["matches"] for row in rows)
    else:
        matches = sum(max(1, len(line.spans or ())) for _, line in lines)
    if not matches:
        return
    result.files += 1
    result.matches += matches
    if run.is_full:
        return
    passages = list(_runs(lines, run.context)) if lines else []
    for passage in passages[:1] if run.per_file else passages:
        if len(result.passages) == run.limit:
            break
        result.passages.append(
            Passage(
                chunk_id=passage[0][0],
                place=place._replace(line=passage[-1][1].number),
                document_id=document_id,
                lines=tuple(line for _, line in passage),
                matching_lines=sum(row["lines"] for row in rows) if run.per_file else None,
            )
        )
    else:
        if run.per_file or len(with_text) == len(rows):
            return
    result.next = result.passages[-1].place
    if run.per_file:
        result.next = result.next._replace(line=_LAST_LINE)


def _runs(lines: Sequence[tuple[int, Line]], context: int) -> Iterator[list[tuple[int, Line]]]:
    """Divide matching lines into runs: lines whose context touches that of the next one."""
    run: list[tuple[int, Line]] = []
    for chunk_id, line in lines:
        is_apart = not context or (run and line.number - run[-1][1].number > 2 * context + 1)
        if run and (is_apart or len(run) == _MOST_LINES):
            yield run
            run = []
        run.append((chunk_id, line))
    yield run


def _matching_lines(text: str, start_line: int) -> Iterator[Line]:
    """Read the lines with marks, and leave the marks out."""
    for number, line in enumerate(text.split("\n"), start_line):
        if _OPEN in line:
            before, *parts = line.split(_OPEN)
            plain, spans = before, []
            for part in parts:
                match, _, rest = part.partition(_CLOSE)
                if match:
                    spans.append((len(plain), len(plain) + len(match)))
                plain += match + rest
            yield _cut(Line(number, plain, tuple(spans)))


def _cut(line: Line) -> Line:
    """Leave out most of a long line: it keeps what is around its first match."""
    if len(line.text) <= _LONGEST_LINE:
        return line
    begin = max(0, line.spans[0][0] - _LONGEST_LINE // 4) if line.spans else 0
    text = line.text[begin : begin + _LONGEST_LINE]
    if line.spans is None:
        return Line(line.number, text, None)
    spans = ((start - begin, min(end - begin, len(text))) for start, end in line.spans)
    return Line(line.number, text, tuple(span for span in spans if span[0] < len(text)))


async def _with_context(
    connection: asyncpg.Connection, generation_id: int, passages: Sequence[Passage], context: int
) -> list[Passage]:
    """Add the lines around each passage, as far as the document has them."""
    first = [max(1, passage.lines[0].number - context) for passage in passages]
    last = [passage.lines[-1].number + context for passage in passages]
    rows = await connection.fetch(
        _QUERIES["lines"], generation_id, [p.document_id for p in passages], first, last
    )
    parts: defaultdict[int, list[TextPart]] = defaultdict(list)
    for place, *part in rows:
        parts[place - 1].append(TextPart(*part))
    return [
        replace(passage, lines=_around(passage, parts[index], first[index], last[index]))
        for index, passage in enumerate(passages)
    ]


def _around(passage: Passage, parts: Sequence[TextPart], first: int, last: int) -> tuple[Line, ...]:
    matching = {line.number: line for line in passage.lines}
    texts = joined_lines(parts, first)[: last - first + 1]
    return (
        tuple(
            matching.get(number) or _cut(Line(number, text, None))
            for number, text in enumerate(texts, first)
        )
        or passage.lines
    )


async def _bound(connection: asyncpg.Connection, run: _Run) -> None:
    """Let the server cancel the next statement at the deadline."""
    left_ms = int((run.deadline - monotonic()) * 1000)
    await connection.execute(_QUERIES["bound_time"], str(max(_SMALLEST_TIMEOUT_MS, left_ms)))
