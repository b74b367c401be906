"""Exact search: finds the lines that match a pattern, in path order, within bounds.

Postgres matches the texts, so that they do not travel. Terms that each match has narrow the chunks
by the keyword index; other patterns scan the documents. Both run in batches of documents, until all
are searched, or the time or the number of chunks is used up.

A search for a frequent word walks the documents in path order, and reads only its chunks. A search
for a rare one puts its chunks into path order first. In between, it walks some documents before.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, groupby, islice
from operator import itemgetter
from time import monotonic

import asyncpg

from runtime.errors import UsageError
from store.documents.text import TextPart, joined_lines
from store.generations.catalog import Generation
from store.postgres.named_queries import named
from store.postgres.pool import Database
from store.search.chunk_rows import ROW_COLUMNS, chunk_row
from store.search.filters import PLANNED_ONCE, Condition, Visibility
from store.search.keyword.retriever import KeywordRetriever, Narrowed
from store.search.keyword.tokenizer import TOKENS_VERSION
from store.search.lines import (
    CLOSE,
    LAST_LINE,
    LONGEST_LINE,
    OPEN,
    Line,
    Place,
    cut,
    marked_lines,
    read_marks,
    runs_of,
)
from store.search.patterns import Pattern
from store.types import ChunkRow

__all__ = [
    "MOST_CHUNKS",
    "MOST_COUNTED",
    "MOST_MILLISECONDS",
    "ExactMatches",
    "ExactSearch",
    "Passage",
]

MOST_MILLISECONDS = 250
"""Time after which a search ends, and is truncated."""

MOST_CHUNKS = 200_000
"""Chunks after which a search ends, and is truncated."""

MOST_COUNTED = 64
"""Chunks with a word in which further matches are counted once the passages are found.

If more are left, the search ends: to count in some of them would say little.
"""

_COUNTING_SHARE = 0.02
"""Share of the time in which further matches are counted in all chunks."""

_FIRST_BATCH = 4
_FIRST_WALKED = 24
"""First documents that are searched for a word: most of their chunks are not read."""

_LARGEST_WALKED = 96
"""Most documents that the first batch has."""

_CHUNKS_PER_WALKED = 36
"""Chunks with a word for each document that is searched before they are put into path order.

Their rows are all over the table, so that reading one takes as long as several neighbours, and a
frequent word often fills the answer sooner. Below ``_FIRST_WALKED`` documents, it seldom does.
"""

_MOST_ORDERED = 4_096
"""Most chunks that are put into path order before documents are searched for a word.

Of a word with capitals, few chunks with its term contain it, but each has to be read to find out.
"""

_CANDIDATES_READ = (512, 4_096)
"""Most chunks with a rare word that are read at first, and then, to find whether many are left.

If there are more, evenly spaced ones are read, which usually show it.
"""

_LARGEST_BATCH = 4_096
_CHUNKS_PER_PASSAGE = 2
"""Chosen chunks that are read at first for each passage, as not all of them match."""

_BATCH_SECONDS = 0.04
_SMALLEST_TIMEOUT_MS = 5
_OVERTIME = 1.2
"""Most share of the time left that a statement may take. Each change takes a round trip."""

_AFTER_AGENT = " "
"""A name with this at its end comes after the name, and before all longer ones."""

_QUERIES = named("exact")


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
    rows: dict[int, ChunkRow] = field(default_factory=dict)
    is_live: bool = False


@dataclass
class _Run:
    """State of one search. ``timeout_ms``: the longest duration of the next statement.

    ``narrowed``: chunks of a word that each match has. ``bits``: the same, if a match is that word
    alone, so that other chunks are not read.
    """

    pattern: Pattern
    visibility: Visibility
    after: Place
    limit: int
    per_file: bool
    context: int
    seconds: float
    ends_at: float = math.inf
    deadline: float = math.inf
    timeout_ms: float = math.inf
    result: ExactMatches = field(default_factory=ExactMatches)
    narrowed: Narrowed | None = None
    bits: tuple[bytes, int] | None = None

    @property
    def is_full(self) -> bool:
        return self.result.next is not None

    @property
    def is_word(self) -> bool:
        """Return whether each match is one word.

        It is in one chunk then: chunkers cut within a word only if it has hundreds of characters.
        """
        return self.pattern.is_word and not self.visibility.words

    @property
    def is_rare(self) -> bool:
        """Return whether the chunks with a word are few enough to be put into path order."""
        return self.narrowed is not None and self.narrowed.is_rare

    @property
    def is_at_its_bounds(self) -> bool:
        """Return whether the time or the number of chunks is used up."""
        return monotonic() >= self.deadline or self.result.chunks >= MOST_CHUNKS

    def begin_counting(self) -> None:
        """Reduce the time that is left, once the passages are found.

        Few chunks with a word are counted completely instead, so that the load decides no count.
        """
        if self.bits is None and self.deadline == self.ends_at:
            self.deadline = min(self.deadline, monotonic() + _COUNTING_SHARE * self.seconds)

    @property
    def left_ms(self) -> int:
        """Milliseconds until the search ends; counting in chosen chunks is paced instead."""
        ends_at = self.ends_at if self.is_rare else self.deadline
        return max(_SMALLEST_TIMEOUT_MS, int((ends_at - monotonic()) * 1000))


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
        result = run.result
        words = (*pattern.words, *visibility.words)
        has_terms = generation.recipe.tokens == TOKENS_VERSION
        narrows = bool(words) and has_terms
        settings = PLANNED_ONCE if visibility.is_plain else {}
        scope = partial(self._database.scope, generation.project_id, agent, generation.id)
        async with scope(settings) as connection:
            try:
                if has_terms:
                    run.visibility = await self._keyword.with_definitions(connection, visibility)
                if narrows:
                    run.narrowed = await self._keyword.narrowed(connection, visibility, words)
                    run.bits = run.narrowed.bits() if run.is_word else None
                await _search(connection, run, keep_counting=after is None)
            except asyncpg.QueryCanceledError:
                result.truncated = True
            except asyncpg.DataError as error:
                raise UsageError(
                    f"the pattern is too complex: {error}", "make it shorter"
                ) from None
        if result.truncated and result.next is None:
            result.next = run.after
        if result.passages and context:
            async with scope() as connection:
                result.passages = await _with_context(
                    connection, generation.id, result.passages, context
                )
        return result


async def _search(connection: asyncpg.Connection, run: _Run, *, keep_counting: bool) -> None:
    """Search batch by batch; ``run.after`` follows what was searched."""
    run.ends_at = run.deadline = monotonic() + run.seconds
    documents = _Documents(connection, run)
    while True:
        began = monotonic()
        batch = await documents.next()
        if batch:
            await _search_batch(connection, run, batch)
        if documents.are_taken or (run.is_full and not keep_counting):
            return
        if run.is_full:
            run.begin_counting()
        if run.is_at_its_bounds or (run.is_full and await documents.has_many()):
            run.result.truncated = True
            return
        documents.resize(began)


class _Documents:
    """The documents of a search in path order, in batches.

    The first ones come from a walk through all documents. If a word is rare, the others come from a
    queue of the documents with chunks that have it. ``are_taken``: none are left.
    """

    def __init__(self, connection: asyncpg.Connection, run: _Run) -> None:
        self._connection = connection
        self._run = run
        self._queue: list[asyncpg.Record] | None = None
        self._left_to_walk = _documents_to_walk(run)
        self._size = _FIRST_BATCH if run.bits is None else _FIRST_WALKED
        if self._left_to_walk <= _LARGEST_WALKED:
            self._size = max(self._size, int(self._left_to_walk))
        self.are_taken = False

    async def next(self) -> list[asyncpg.Record]:
        """Take the next batch. The queue is read when the walk would go too far for a batch."""
        run = self._run
        if self._queue is None and self._left_to_walk < self._size and not run.is_full:
            self._queue = await _chosen_documents(self._connection, run)
            self._size = _least_documents(self._queue, _CHUNKS_PER_PASSAGE * run.limit)
        return await self._walked() if self._queue is None else self._from(self._queue)

    async def _walked(self) -> list[asyncpg.Record]:
        batch = await _documents(self._connection, self._run, "next_documents", self._size)
        self._left_to_walk -= self._size
        self.are_taken = len(batch) < self._size
        return batch

    def _from(self, queue: list[asyncpg.Record]) -> list[asyncpg.Record]:
        batch, self._queue = queue[: self._size], queue[self._size :]
        self.are_taken = not self._queue
        return batch

    async def has_many(self) -> bool:
        """Return whether too many chunks with a word are left to count in; others are queued.

        Only chunks that are visible and pass the filters are counted, so that the answer does not
        depend on documents that the agent may not see. Returns False if all chunks are searched.
        """
        run = self._run
        ids: Sequence[int] = ()
        if self._queue is not None:
            ids = [chunk_id for document in self._queue for chunk_id in document["chunk_ids"]]
            if len(ids) <= MOST_COUNTED or not run.visibility.selects_chunks:
                return len(ids) > MOST_COUNTED
        elif run.narrowed is None or run.bits is None:
            return False
        elif run.is_rare:
            ids = run.narrowed.chunk_ids.tolist()
        self._queue = await _rest(self._connection, run, ids)
        return self._queue is None

    def resize(self, began: float) -> None:
        """Let the next batch take up to ``_BATCH_SECONDS``, by the time since this one began.

        What is left of a queue is counted in one batch.
        """
        if self._run.is_full and self._queue is not None:
            self._size = len(self._queue)
            return
        time_left = min(_BATCH_SECONDS, self._run.deadline - monotonic())
        pace = time_left / max(monotonic() - began, 1e-4)
        self._size = int(min(_LARGEST_BATCH, max(1, self._size * min(4.0, pace))))


def _documents_to_walk(run: _Run) -> float:
    """Number of documents to search before the chunks with a word are put into path order."""
    narrowed = run.narrowed
    if narrowed is None or not narrowed.is_rare:
        return math.inf
    count = len(narrowed.chunk_ids)
    has_capitals = narrowed.text != narrowed.text.lower()
    if run.bits is None or (has_capitals and count <= _MOST_ORDERED):
        return 0  # few of the chunks with a term have the word with these capitals
    return count // _CHUNKS_PER_WALKED


async def _chosen_documents(connection: asyncpg.Connection, run: _Run) -> list[asyncpg.Record]:
    """The rest of the documents that have chunks with the rarest word, with these chunks."""
    assert run.narrowed is not None
    ids = _array(run.narrowed.chunk_ids.tolist())
    return await _documents(connection, run, "documents_of", ids, run.narrowed.text)


def _least_documents(documents: Sequence[asyncpg.Record], chunks: int) -> int:
    """Return the number of the first documents that have so many of the chosen chunks."""
    sums = accumulate(len(document["chunk_ids"]) for document in documents)
    return next((count for count, total in enumerate(sums, 1) if total >= chunks), _LARGEST_BATCH)


async def _rest(
    connection: asyncpg.Connection, run: _Run, chunk_ids: Sequence[int]
) -> list[asyncpg.Record] | None:
    """The documents behind ``run.after`` with chunks that have the word, are visible and pass.

    Returns None if these chunks are more than ``MOST_COUNTED``. ``chunk_ids``: see ``_sources``.
    """
    documents: list[asyncpg.Record] = []
    for candidates, arguments in _sources(run, chunk_ids):
        documents = await _documents(
            connection, run, "rest", MOST_COUNTED + 1, *arguments, candidates=candidates
        )
        if sum(len(document["chunk_ids"]) for document in documents) > MOST_COUNTED:
            return None
    return documents


def _sources(run: _Run, chunk_ids: Sequence[int]) -> list[tuple[str, tuple[object, ...]]]:
    """Queries of chunks with a word, and their arguments: first of some chunks, finally of all.

    ``chunk_ids``: those of a rare word; the latest ids are probably in the last documents. If there
    are none or many, the last query reads the documents by ``bits``, where they exist: that takes
    less time than to read many chunks by id.
    """
    steps = [math.ceil(len(chunk_ids) / most) for most in _CANDIDATES_READ]
    sampling = [step for step in steps if step > 1]
    by_id: list[tuple[str, tuple[object, ...]]] = [
        ("rest_by_id", (_array(chunk_ids[::-step]),)) for step in (*sampling, 1)
    ]
    if run.bits is None or steps[-1] == 1:
        return by_id
    return [*by_id[:-1], ("rest_by_document", run.bits)]


async def _documents(
    connection: asyncpg.Connection, run: _Run, name: str, *wanted: object, candidates: str = ""
) -> list[asyncpg.Record]:
    """Run a query of documents. Conditions on chunks need a query with ``candidates``."""
    conditions = run.visibility.of_document(first_parameter=5 + len(wanted))
    if not conditions.sql or (run.visibility.selects_chunks and not candidates):
        conditions = Condition("true", ())
    sql = _QUERIES[name].format(
        conditions=conditions.sql, candidates=candidates and _QUERIES[candidates]
    )
    generation_id = run.visibility.generation_id
    uri, agent, line = run.after
    if line == LAST_LINE:
        agent += _AFTER_AGENT
    if run.timeout_ms < math.inf:  # the first query needs no round trip before it
        await _bound(connection, run)
    run.timeout_ms = run.left_ms
    rows: list[asyncpg.Record] = await connection.fetch(
        sql, generation_id, uri, agent, str(run.timeout_ms), *wanted, *conditions.arguments
    )
    return rows


def _array(numbers: Sequence[int]) -> str:
    """Array of Postgres as text, because the driver takes long to encode many elements."""
    return f"{{{','.join(map(str, numbers))}}}"


async def _search_batch(
    connection: asyncpg.Connection, run: _Run, batch: Sequence[asyncpg.Record]
) -> None:
    await _bound(connection, run)
    result = run.result
    chosen: list[object]
    if "chunk_ids" in batch[0]:
        ids = _array([chunk_id for document in batch for chunk_id in document["chunk_ids"]])
        pieces, chunks, chosen = "pieces_of_chunks", "chunks_by_id", [ids, run.is_word]
    elif run.bits is not None:
        bits, first = run.bits
        pieces, chunks, chosen = "pieces_of_chunks", "chunks_by_document", [bits, True, first]
    else:
        pieces, chunks, chosen = "pieces_of_documents", "", []
    conditions = run.visibility.of_document(first_parameter=12 + len(chosen))
    if not run.visibility.selects_chunks or not conditions.sql:
        conditions = Condition("true", ())
    sql = _QUERIES["passages"].format(
        columns=ROW_COLUMNS,
        pieces=_QUERIES[pieces].format(
            conditions=conditions.sql,
            chunks=chunks and _QUERIES[chunks],
            documents=_QUERIES["with_documents"] if conditions.sql != "true" else "",
        ),
    )
    rows = await connection.fetch(
        sql,
        run.visibility.generation_id,
        [document["id"] for document in batch],
        run.pattern.sql,
        run.pattern.literal,
        run.visibility.of_examples,
        0 if run.is_full else run.limit + 2,
        OPEN,
        CLOSE,
        run.per_file,
        run.after.line if Place(batch[0]["uri"], batch[0]["agent"])[:2] == run.after[:2] else 0,
        run.pattern.is_literal,
        *chosen,
        *conditions.arguments,
    )
    result.chunks += rows[0]["chunks"]
    result.is_live = rows[0]["is_live"]
    hits = (row for row in rows if row["place"] is not None)
    for number, of_document in groupby(hits, key=itemgetter("place")):
        document = batch[number - 1]
        _take(run, document["id"], Place(document["uri"], document["agent"]), list(of_document))
    last = batch[-1]
    run.after = Place(last["uri"], last["agent"], LAST_LINE)
    result.searched_to = last["uri"]


def _take(run: _Run, document_id: int, place: Place, rows: Sequence[asyncpg.Record]) -> None:
    """Count the matches of a document, and add its passages until there are enough."""
    result = run.result
    first = run.after.line + 1 if place[:2] == run.after[:2] else 1
    with_text = [row for row in rows if row["text"] is not None]
    lines = [
        line
        for row in with_text
        for line in marked_lines(row["text"], row["first_line"], row["chunk_id"])
        if line.number >= first
    ]
    if run.is_full or first == 1:
        matches = sum(row["matches"] + (row["text"] or "").count(OPEN) for row in rows)
    else:
        matches = sum(line.text.count(OPEN) for line in lines)
    if not matches:
        return
    result.files += 1
    result.matches += matches
    if run.is_full:
        return
    row_of = {row["chunk_id"]: row for row in with_text}
    for passage in islice(runs_of(lines, run.context), 1 if run.per_file else None):
        if len(result.passages) == run.limit:
            break
        chunk_id = passage[0].chunk_id
        if chunk_id not in result.rows:
            result.rows[chunk_id] = chunk_row(row_of[chunk_id])
        result.passages.append(
            Passage(
                chunk_id=chunk_id,
                place=place._replace(line=passage[-1].number),
                document_id=document_id,
                lines=tuple(read_marks(passage)),
                matching_lines=sum(row["lines"] for row in rows) if run.per_file else None,
            )
        )
    else:
        if run.per_file or len(with_text) == len(rows):
            return
    result.next = result.passages[-1].place
    if run.per_file:
        result.next = result.next._replace(line=LAST_LINE)


async def _with_context(
    connection: asyncpg.Connection, generation_id: int, passages: Sequence[Passage], context: int
) -> list[Passage]:
    """Add the lines around each passage, as far as the document has them."""
    first = [max(1, passage.lines[0].number - context) for passage in passages]
    last = [passage.lines[-1].number + context for passage in passages]
    rows = await connection.fetch(
        _QUERIES["lines"],
        generation_id,
        [passage.document_id for passage in passages],
        first,
        last,
        LONGEST_LINE,
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
        tuple(matching.get(number) or cut(number, text) for number, text in enumerate(texts, first))
        or passage.lines
    )


async def _bound(connection: asyncpg.Connection, run: _Run) -> None:
    """Let the server cancel the next statement near the end of the search."""
    left_ms = run.left_ms
    if run.timeout_ms > _OVERTIME * left_ms:
        await connection.execute(_QUERIES["bound_time"], str(left_ms))
        run.timeout_ms = left_ms
