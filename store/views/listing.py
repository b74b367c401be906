"""Lists of documents, chunks, collections and sources in live generations, page by page.

Every list has a fixed order by a unique key, and a page begins after the last key of the page
before. So nothing is skipped or repeated while documents change.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import asyncpg

from events.models import Scalar
from events.names import DocumentKey, LogPosition, overlay_suffix, readable_agents
from runtime.errors import NotFound, UnknownProject, UsageError
from store.documents import ledger
from store.documents.text import TextPart, ending_of, joined_lines
from store.generations.catalog import Generation, Projects, Recipe, enter_live, unknown_project
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.sources import scope_in
from store.views.batches import Batch, SkippedFiles, batch_of

__all__ = [
    "ChangeRow",
    "ChangeState",
    "ChunkRow",
    "CollectionRow",
    "DocumentRow",
    "Lines",
    "Listing",
    "MinuteRow",
    "ProjectRow",
    "SourceRow",
    "cursor_of",
]

_QUERIES = named("listing")
_DOCUMENTS = _QUERIES["document_rows"].format(page=_QUERIES["documents_page"])
_DOCUMENT = _QUERIES["document_rows"].format(
    page=_QUERIES["single_document"].format(agents="$3", uri="$4")
)
_DOCUMENT_ID = _QUERIES["document_id"].format(
    page=_QUERIES["single_document"].format(agents="$2", uri="$3")
)
_DOCUMENT_WITH_SOURCE_ID = _QUERIES["document_rows"].format(
    page=_QUERIES["document_with_source_id"]
)
_PAGE = 50
_LAST_CHARACTER = 0x10FFFF
_AFTER_ALL_URIS = chr(_LAST_CHARACTER) * 8
_LONGEST_CURSOR = 16_384
_SURROGATES = range(0xD800, 0xE000)
_NEWEST = LogPosition(2**63 - 1, 0)
_MOST_MINUTES = 1_440

ChangeState = Literal["indexed", "superseded", "rejected"]


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document that is not deleted.

    ``lines`` is the number of its last line that is not blank. ``examples`` of the ``chunks`` are
    code examples. ``tokens`` counts the chunks with their headers; ``pending`` counts those that
    have no vector yet. ``agent`` is None for a shared document, ``source`` is the name of its
    source. ``token`` and ``event_id`` are those of its last change; ``content_hash`` is a SHA-256
    in hex.
    """

    uri: str
    agent: str | None
    kind: str
    title: str | None
    lines: int
    chunks: int
    tokens: int
    pending: int
    content_hash: str | None
    commit: str | None
    collections: tuple[str, ...]
    metadata: Mapping[str, Scalar]
    source: str | None
    media_type: str | None
    event_id: str | None
    token: str
    published_at: datetime
    updated_at: datetime
    examples: int = 0

    @property
    def overlay(self) -> str | None:
        """Name of the overlay that the document belongs to; None if it is in none."""
        return self.source if overlay_suffix(self.agent) else None

    @property
    def cursor(self) -> str:
        """Value of ``after`` for the page that begins after this document."""
        return cursor_of(self.uri, self.agent)


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk of a document; lines are counted from 1.

    ``number`` counts the chunks of the document from 1; a page of chunks begins after a number.
    ``model`` is None if the chunk gets no vector. ``locator`` is its place in a document that is
    not text (see ``content.places``). Code examples follow the chunks of the text; ``language`` is
    that of their code.
    """

    number: int
    chunk_id: int
    start_line: int
    end_line: int
    page: int | None
    locator: Mapping[str, Any] | None
    symbol: str | None
    heading_path: tuple[str, ...]
    tokens: int
    model: str | None
    content: str
    is_example: bool = False
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines ``first`` to ``last`` of a document, joined by line feeds; its last line is ``total``.

    ``exact`` is True if the lines of the whole document are those of the published text, by its
    hash, and False if they differ from it in white space. It is None if only a part was read, or
    the hash is unknown. ``ending`` has the line ends that follow the last line in an exact text.
    """

    text: str
    first: int
    last: int
    total: int
    content_hash: str | None
    exact: bool | None = None
    ending: str = ""


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """A collection with the number of its documents that the agent may see."""

    name: str
    documents: int


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source with the number of its documents, and the batch of its latest sync.

    Only ``agent`` may see it; None: all may. ``base`` names the source that it is an overlay of.
    ``synced_at`` is the end of the last complete sync, and ``commit`` is what it published. The
    batch is None before the first sync of this version.
    """

    id: str
    name: str
    kind: str
    location: str
    uri_prefix: str
    documents: int
    commit: str | None
    synced_at: datetime | None
    batch: Batch | None
    agent: str | None = None
    base: str | None = None

    @property
    def found(self) -> int | None:
        """Number of files that the latest sync found. It is None if that is not known."""
        return None if self.batch is None else self.batch.found

    @property
    def skipped(self) -> tuple[SkippedFiles, ...]:
        """Files that the latest sync left out, by reason."""
        return () if self.batch is None else self.batch.skipped

    @property
    def skipped_count(self) -> int:
        """Number of files that the latest sync left out."""
        return 0 if self.batch is None else self.batch.skipped_count


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A handled change, from the ledger.

    ``detail`` is the reason of a rejection. ``uri`` and ``agent`` are None if the event could not
    be read, or was handled by an older version; the agent of a shared document is ''.
    """

    token: str
    event_id: str
    uri: str | None
    agent: str | None
    state: ChangeState
    published_at: datetime | None
    handled_at: datetime
    detail: str | None
    batch: str | None


@dataclass(frozen=True, slots=True)
class MinuteRow:
    """Changes that were handled in a minute, and their freshness in ms.

    Freshness is that of applied changes, from publishing to searchable by keyword. It is None if
    there are none.
    """

    minute: datetime
    changes: int
    rejected: int
    freshness_p50_ms: float | None
    freshness_p99_ms: float | None


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """A project with the size and the freshness of its live generation.

    ``kinds`` counts documents by kind. ``examples`` of the chunks are code examples. ``pending``
    chunks have no vector yet. Freshness is the time
    from publishing to searchable by keyword of the last 1,000 changes, in ms; None without changes.
    """

    project: str
    documents: int
    chunks: int
    pending: int
    kinds: Mapping[str, int]
    generation: int
    recipe: Recipe
    freshness_p50_ms: float | None
    freshness_p99_ms: float | None
    examples: int = 0

    @property
    def model(self) -> str:
        """Name of the model that embeds the kinds without a model of their own."""
        return self.recipe.model


def cursor_of(uri: str, agent: str | None = None) -> str:
    """Value of ``after`` for the page that begins after a document."""
    key = json.dumps([uri, agent or ""], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


class Listing:
    """Reads what the live generations hold; shared documents, and those private to ``agent``.

    The agent ``EVERY_AGENT`` stands for all agents. An answerer's role may call every method
    except ``projects``.

    Every method raises ``UnknownProject`` if the project does not exist, and ``Unavailable`` if
    Postgres cannot be reached.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._projects = Projects(database)

    async def documents(
        self,
        project: str,
        agent: str | None,
        *,
        under: str | None = None,
        kind: str | None = None,
        collection: str | None = None,
        source: str | None = None,
        after: str | None = None,
        limit: int = _PAGE,
    ) -> list[DocumentRow]:
        """At most ``limit`` documents by uri; of equal uris, the shared document comes first.

        Args:
            project: name of the project.
            agent: sees its private documents too; None: only shared documents.
            under: beginning of the uris.
            kind: kind of content.
            collection: name of a collection.
            source: name of a source.
            after: cursor of the last document of the page before; None: the first page.
            limit: most documents of the page.

        Raises:
            NotFound: the project has no such source.
            UsageError: ``after`` is not a cursor.
        """
        last = DocumentKey("", "") if after is None else _key(after)
        start, end = _range(under or "")
        async with self._live(project, agent) as (connection, live):
            source_id = await _source_id(connection, live, project, source)
            rows = await connection.fetch(
                _DOCUMENTS,
                live.id,
                live.project_id,
                await _agents(connection, live, agent),
                max(start, last.uri),
                end,
                last.uri,
                last.agent,
                under or "",
                kind,
                collection,
                source_id,
                limit,
                overlay_suffix(agent),
            )
        return [_document(row) for row in rows]

    async def count_documents(
        self,
        project: str,
        agent: str | None,
        *,
        under: str | None = None,
        kind: str | None = None,
        collection: str | None = None,
        source: str | None = None,
    ) -> int:
        """Exact number of the documents that ``documents`` lists; raises as it does."""
        start, end = _range(under or "")
        async with self._live(project, agent) as (connection, live):
            source_id = await _source_id(connection, live, project, source)
            return int(
                await connection.fetchval(
                    _QUERIES["count_documents"],
                    live.id,
                    start,
                    end,
                    under or "",
                    kind,
                    collection,
                    source_id,
                )
            )

    async def document(self, project: str, agent: str | None, uri: str) -> DocumentRow:
        """A document; the private one if there is a shared one of the same uri.

        Raises:
            NotFound: the agent sees no document of this uri.
        """
        async with self._live(project, agent) as (connection, live):
            agents = await _agents(connection, live, agent)
            row = await connection.fetchrow(_DOCUMENT, live.id, live.project_id, agents, uri)
        if row is None:
            raise _no_document(project, uri)
        return _document(row)

    async def document_with_source_id(
        self, project: str, agent: str | None, source_id: str
    ) -> DocumentRow:
        """Find a document by 32 hex digits: the beginning of the SHA-256 of its kind and uri.

        The two are joined by a line feed. Every uri is read.

        Raises:
            NotFound: the agent sees no such document.
        """
        async with self._live(project, agent) as (connection, live):
            agents = await _agents(connection, live, agent)
            row = await connection.fetchrow(
                _DOCUMENT_WITH_SOURCE_ID, live.id, live.project_id, agents, source_id
            )
        if row is None:
            raise NotFound(
                f"{project} has no document with the source id {source_id[:32]!r}",
                "`GET /rag/sources` lists the ids; another kind or path has another",
            )
        return _document(row)

    async def chunks(
        self, project: str, agent: str | None, uri: str, *, after: int = 0, limit: int = _PAGE
    ) -> list[ChunkRow]:
        """At most ``limit`` chunks of a document whose number is above ``after``, in order.

        Raises:
            NotFound: the agent sees no document of this uri.
        """
        async with self._live(project, agent) as (connection, live):
            document_id = await _document_id(connection, live, project, agent, uri)
            rows = await connection.fetch(
                _QUERIES["chunks"], live.id, document_id, max(after, 0), limit
            )
        return [_chunk(row) for row in rows]

    async def lines(
        self,
        project: str,
        agent: str | None,
        uri: str,
        *,
        first: int = 1,
        last: int | None = None,
    ) -> Lines:
        """Lines ``first`` to ``last`` (None: the last one) of a document, counted from 1.

        Lines that the document does not have are left out. Blank lines at its end are not stored.

        Raises:
            NotFound: the agent sees no document of this uri, or ``first`` is behind its last line.
        """
        first = max(first, 1)
        async with self._live(project, agent) as (connection, live):
            document_id = await _document_id(connection, live, project, agent, uri)
            row = await connection.fetchrow(_QUERIES["size_of_document"], live.id, document_id)
            total, content_hash = row["total"], row["content_hash"]
            if first > max(total, 1):
                raise NotFound(
                    f"{uri} has no line {first}; its last line is {total}",
                    f"read lines between 1 and {total}",
                )
            last = total if last is None else min(last, total)
            parts = await connection.fetch(
                _QUERIES["text_of_document"], live.id, document_id, first, last
            )
        count = max(last - first + 1, 0)
        lines = joined_lines((TextPart(*part) for part in parts), first)[:count]
        text = "\n".join([*lines, *[""] * (count - len(lines))])  # the last ones may be blank
        if content_hash is None or (first, last) != (1, total):
            return Lines(text, first, last, total, content_hash)
        ending = ending_of(text, content_hash)
        return Lines(text, first, last, total, content_hash, ending is not None, ending or "")

    async def stored_uris(
        self,
        project: str,
        agent: str | None,
        *,
        uris: Collection[str] = (),
        prefix: str | None = None,
        deleted_too: bool = True,
    ) -> list[str]:
        """Stored uris that are in ``uris``, or begin with ``prefix``.

        Those of the agent only, or of the shared documents. Deleted documents are among those of
        ``uris``, and with ``deleted_too`` among those of ``prefix``. Empty if the project is
        unknown.
        """
        with suppress(UnknownProject):
            async with self._live(project, agent) as (connection, live):
                rows = await connection.fetch(
                    _QUERIES["stored_uris"], live.id, agent or "", list(uris), prefix, deleted_too
                )
            return [row["uri"] for row in rows]
        return []

    async def overlaid(self, project: str, agent: str | None, overlay: str) -> str:
        """The agent by which ``agent`` sees an overlay, see ``overlay_agent``.

        Raises:
            NotFound: the agent sees no overlay of this name.
        """
        async with self._live(project, agent) as (connection, live):
            return await scope_in(connection, live.project_id, agent, overlay)

    async def collections(self, project: str, agent: str | None) -> list[CollectionRow]:
        """Collections by name that have documents which the agent may see."""
        async with self._live(project, agent) as (connection, live):
            rows = await connection.fetch(_QUERIES["collections"], live.id)
        return [CollectionRow(**row) for row in rows]

    async def sources(self, project: str, agent: str | None = None) -> list[SourceRow]:
        """Sources of a project that the agent may see, by name."""
        async with self._live(project, agent) as (connection, live):
            await connection.execute(_QUERIES["enter_overlays"], live.project_id)
            rows = await connection.fetch(_QUERIES["sources"], live.project_id, live.id)
            batches = await connection.fetch(_QUERIES["latest_batches"], live.project_id)
        by_source = {row["source_id"]: batch_of(row) for row in batches}
        return [_source(row, by_source) for row in rows]

    async def changes(
        self,
        project: str,
        agent: str | None,
        *,
        after: str | None = None,
        state: ChangeState | None = None,
        uri: str | None = None,
        limit: int = _PAGE,
    ) -> list[ChangeRow]:
        """Handled changes, newest first, without those private to other agents.

        Args:
            project: name of the project.
            agent: sees the changes of its private documents too.
            after: token of the last change of the page before; None: the first page.
            state: outcome of the changes.
            uri: uri of the changed document.
            limit: most changes of the page.

        Raises:
            MalformedEvent: ``after`` is not a token.
        """
        last = _NEWEST if after is None else LogPosition.from_token(after)
        query = "changes" if uri is None else "changes_of_document"
        async with self._live(project, agent) as (connection, live):
            rows = await connection.fetch(
                _QUERIES[query],
                live.project_id,
                agent or "",
                *last,
                state,
                limit,
                *(() if uri is None else (uri,)),
            )
        return [_change(row) for row in rows]

    async def change(self, project: str, token: str, agent: str | None = None) -> ChangeRow | None:
        """A handled change by its token. Returns None if it is not handled yet, or unknown.

        The change of a private document has no uri, agent and detail, unless it is the agent's.

        Raises:
            MalformedEvent: the text is not a token.
        """
        position = LogPosition.from_token(token)
        async with self._live(project, None) as (connection, live):
            row = await connection.fetchrow(
                _QUERIES["change"], live.project_id, *position, agent or ""
            )
        return None if row is None else _change(row)

    async def history(self, project: str, minutes: int = 60) -> list[MinuteRow]:
        """The last minutes (at most 1,440) with their changes, the current one at the end."""
        async with self._live(project, None) as (connection, live):
            rows = await connection.fetch(
                _QUERIES["history"], live.project_id, min(minutes, _MOST_MINUTES)
            )
        return [MinuteRow(**row) for row in rows]

    async def project(self, project: str, agent: str | None) -> ProjectRow:
        """A project, with the counts of what the agent may see."""
        async with self._live(project, agent) as (connection, live):
            kinds = await connection.fetch(_QUERIES["kinds"], live.id)
            counts = await connection.fetchrow(_QUERIES["count_chunks"], live.id)
            p50_ms, p99_ms = await ledger.freshness(connection, live.project_id)
        by_kind = {row["kind"]: row["documents"] for row in kinds}
        return ProjectRow(
            project,
            sum(by_kind.values()),
            counts["chunks"],
            counts["pending"],
            by_kind,
            live.id,
            live.recipe,
            p50_ms,
            p99_ms,
            counts["examples"],
        )

    async def projects(self) -> list[ProjectRow]:
        """All projects by name, with the private documents of all agents. For operators."""
        return [
            await self.project(project, EVERY_AGENT)
            for project in sorted(await self._projects.all())
        ]

    @asynccontextmanager
    async def _live(
        self, project: str, agent: str | None
    ) -> AsyncIterator[tuple[asyncpg.Connection, Generation]]:
        """Begin a transaction in the scope of an agent and of the project's live generation."""
        project_id = await self._projects.find(project)
        if project_id is None:
            raise unknown_project(project)
        async with self._database.scope(project_id, agent) as connection:
            yield connection, await enter_live(connection, project_id)


async def _agents(
    connection: asyncpg.Connection, live: Generation, agent: str | None
) -> Sequence[str]:
    """Agents whose documents are listed; '' for the shared ones."""
    if agent != EVERY_AGENT:
        return ["", *readable_agents(agent)]
    rows = await connection.fetch(_QUERIES["agents"], live.id)
    return [row["agent"] for row in rows]


async def _source_id(
    connection: asyncpg.Connection, live: Generation, project: str, source: str | None
) -> str | None:
    if source is None:
        return None
    source_id: str | None = await connection.fetchval(
        _QUERIES["source_id"], live.project_id, source
    )
    if source_id is None:
        raise NotFound(
            f"{project} has no source {source[:80]!r}",
            f"`headrace source list -p {project}` lists them",
        )
    return source_id


async def _document_id(
    connection: asyncpg.Connection, live: Generation, project: str, agent: str | None, uri: str
) -> int:
    agents = await _agents(connection, live, agent)
    document_id: int | None = await connection.fetchval(_DOCUMENT_ID, live.id, agents, uri)
    if document_id is None:
        raise _no_document(project, uri)
    return document_id


def _no_document(project: str, uri: str) -> NotFound:
    return NotFound(
        f"{project} has no document {uri!r}", f"`headrace document list -p {project}` lists all"
    )


def _key(cursor: str) -> DocumentKey:
    """Inverse of ``cursor_of``."""
    if len(cursor) <= _LONGEST_CURSOR:
        try:
            padded = cursor + "=" * (-len(cursor) % 4)
            key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        except (binascii.Error, ValueError, RecursionError):
            key = None
        match key:
            case [str(uri), str(agent)] if "\0" not in uri + agent:
                return DocumentKey(agent, uri)
    raise UsageError(f"{cursor[:80]!r} is not a cursor of this list", "leave it out to begin")


def _range(prefix: str) -> tuple[str, str]:
    """Return the first uri with a prefix, and an end that is above all of them.

    The database compares uris by code point.
    """
    for length in range(len(prefix), 0, -1):
        code = ord(prefix[length - 1]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code <= _LAST_CHARACTER:
            return prefix, prefix[: length - 1] + chr(code)
    return prefix, _AFTER_ALL_URIS


def _document(row: Mapping[str, Any]) -> DocumentRow:
    values = dict(row)
    token = LogPosition(values.pop("position"), values.pop("partition")).token
    return DocumentRow(
        **values
        | {
            "agent": row["agent"] or None,
            "collections": tuple(row["collections"]),
            "metadata": json.loads(row["metadata"]),
            "token": token,
        }
    )


def _source(row: Mapping[str, Any], batches: Mapping[str, Batch]) -> SourceRow:
    values = {**row, "agent": row["agent"] or None}
    return SourceRow(batch=batches.get(row["id"]), **values)


def _change(row: Mapping[str, Any]) -> ChangeRow:
    values = dict(row)
    token = LogPosition(values.pop("position"), values.pop("partition")).token
    return ChangeRow(token=token, **values)


def _chunk(row: Mapping[str, Any]) -> ChunkRow:
    locator = None if row["locator"] is None else json.loads(row["locator"])
    headings = tuple(row["heading_path"])
    return ChunkRow(**{**row, "heading_path": headings, "locator": locator})
