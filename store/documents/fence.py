"""Documents, and the fence: of the changes of a uri, the one with the highest rank is kept.

``rule`` decides conflicts between sources, and about late changes, before the fence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from events.models import Origin
from events.names import LogPosition, Rank, position_at, rank_of
from runtime.errors import OutdatedChange, PreconditionFailed, SourceConflict
from store.documents.digests import TOMBSTONE, document_digest
from store.postgres.connection import WriteConflict
from store.postgres.named_queries import named
from store.types import DocumentWrite, columns_of, origin_of

__all__ = [
    "Advanced",
    "LateChanges",
    "Revision",
    "Ruling",
    "StoredDocument",
    "advance",
    "check_unseen",
    "lock",
    "newest",
    "revisions_of",
    "rule",
    "stored",
    "tombstones_below",
]

_QUERIES = named("fence")
_EXPIRY = named("expiry")

_NEVER_EXPIRED = timedelta(hours=12)
"""Younger tombstones have not expired, even if clocks differ: a tombstone stays for a day."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it was before the batch."""

    document_id: int
    title: str | None
    log_position: LogPosition
    """Position and partition of the change that produced this version."""
    deleted: bool
    origin: Origin | None
    content_hash: str | None

    @property
    def rank(self) -> Rank:
        """Rank of that change."""
        return rank_of(self.log_position, self.origin)


@dataclass(frozen=True, slots=True)
class Advanced:
    """A document that was advanced to a newer revision; ``created``: it did not exist before."""

    document_id: int
    created: bool


@dataclass(frozen=True, slots=True)
class Revision:
    """The effect of one change on one uri. A rename has two: it also deletes its old uri."""

    uri: str
    write: DocumentWrite
    deleted: bool


def newest(writes: Iterable[DocumentWrite]) -> dict[str, Revision]:
    """The revision of the highest rank of each uri, in order of uri."""
    latest: dict[str, Revision] = {}
    for revision in revisions_of(writes):
        previous = latest.get(revision.uri)
        if previous is None or previous.write.rank < revision.write.rank:
            latest[revision.uri] = revision
    return dict(sorted(latest.items()))


def revisions_of(writes: Iterable[DocumentWrite]) -> Iterator[Revision]:
    """Revisions of documents that changes produce, in order of the changes."""
    for write in writes:
        yield Revision(write.uri, write, write.change == "delete")
        if write.old_uri is not None:
            yield Revision(write.old_uri, write, deleted=True)


async def lock(
    connection: asyncpg.Connection, generation_id: int, agent: str, uris: Sequence[str]
) -> dict[str, StoredDocument]:
    """Lock stored documents until the transaction ends, always in order of uri; return them by uri.

    Another writer may still create one of the missing documents before ``advance``.
    """
    return stored(await connection.fetch(_QUERIES["lock_documents"], generation_id, agent, uris))


def stored(rows: Iterable[Mapping[str, Any]]) -> dict[str, StoredDocument]:
    """Stored documents by uri, from their rows."""
    return {row["uri"]: _stored(row) for row in rows}


async def advance(
    connection: asyncpg.Connection,
    generation_id: int,
    agent: str,
    revisions: Mapping[str, Revision],
    *,
    equal_too: bool = False,
) -> dict[str, Advanced]:
    """Store the revisions that are newer than the stored ones; return their documents by uri.

    ``equal_too``: also store revisions that are equal to the stored ones.
    """
    rows = [_row(revision) for revision in revisions.values()]
    columns = [list(column) for column in zip(*rows, strict=True)]
    query = _QUERIES["advance_documents"]
    advanced = await connection.fetch(query, generation_id, agent, *columns, equal_too)
    return {row["uri"]: Advanced(row["id"], row["created"]) for row in advanced}


def _stored(row: Mapping[str, Any]) -> StoredDocument:
    log_position = LogPosition(row["position"], row["partition"])
    return StoredDocument(
        row["id"],
        row["title"],
        log_position,
        row["deleted"],
        origin_of(row),
        row["content_hash"],
    )


def _row(revision: Revision) -> tuple[object, ...]:
    write = revision.write
    head = revision.uri, write.position, write.partition, revision.deleted, write.published_at
    origin = columns_of(write.origin)
    if revision.deleted:
        counted = 0, write.position
        return *head, None, write.kind, None, None, None, None, "{}", TOMBSTONE, *origin, *counted
    text_chunks = sum(not chunk.is_example for chunk in write.chunks)
    return (
        *head,
        write.content_hash,
        write.kind,
        write.media_type,
        write.title,
        write.commit,
        write.permalink_template,
        json.dumps(dict(write.metadata)),
        document_digest(write),
        *origin,
        text_chunks,
        write.position,
    )


_SOURCES = named("sources")


class LateChanges(Exception):
    """Changes that are older than what is stored; the caller must check if their stream is, too.

    Nothing was written. ``partitions``: partitions of the changes.
    """

    def __init__(self, partitions: frozenset[int]) -> None:
        super().__init__(
            f"changes in partitions {sorted(partitions)} are older than what is stored"
        )
        self.partitions = partitions


@dataclass
class Ruling:
    """Conflicts by index of the change, and changes that are older than what was stored before."""

    conflicts: dict[int, SourceConflict | PreconditionFailed | OutdatedChange] = field(
        default_factory=dict
    )
    late: list[DocumentWrite] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _State:
    """State of a document at a point of the batch; ``stored``: not changed by the batch so far."""

    rank: Rank
    origin: Origin | None
    deleted: bool
    content_hash: str | None
    stored: bool = False


async def rule(
    connection: asyncpg.Connection,
    project_id: int,
    writes: Sequence[DocumentWrite],
    before: Mapping[str, StoredDocument],
) -> Ruling:
    """Determine which changes cannot be applied, one after the other by rank.

    A change of a source must not touch an existing document of another registered source. If the
    change is a rename, neither of its documents changes. The same holds for a change that expects
    another content. A change that is older than all it would change has no effect anyway. A change
    of a document without a row must not be older than an expired tombstone.
    """
    names = await _names(connection, project_id, writes, before)
    forgotten = await _forgotten_below(connection, project_id, writes)
    states = {
        uri: _State(
            document.rank, document.origin, document.deleted, document.content_hash, stored=True
        )
        for uri, document in before.items()
    }
    ruling = Ruling()
    for index, write in sorted(enumerate(writes), key=lambda pair: pair[1].rank):
        newer = [part for part in revisions_of([write]) if _is_newer(part, states)]
        conflict = _first_conflict(write, newer, states, names) or _outdated(
            write, before, forgotten
        )
        if conflict is not None:
            ruling.conflicts[index] = conflict
            continue
        if any(_is_late(part, states) for part in revisions_of([write])):
            ruling.late.append(write)
        for part in newer:
            states[part.uri] = _State(write.rank, write.origin, part.deleted, write.content_hash)
    return ruling


def check_unseen(
    before: Mapping[str, StoredDocument],
    revisions: Mapping[str, Revision],
    won: Mapping[str, Advanced],
) -> None:
    """Make sure that no document was created between ``lock`` and ``advance``.

    The source of such a document was not checked.

    Raises:
        WriteConflict: one was created; the next attempt sees it.
    """
    for uri, revision in revisions.items():
        is_new = uri in won and won[uri].created
        if revision.write.origin is not None and uri not in before and not is_new:
            raise WriteConflict(f"another writer created {uri} at the same time")


async def _names(
    connection: asyncpg.Connection,
    project_id: int,
    writes: Sequence[DocumentWrite],
    before: Mapping[str, StoredDocument],
) -> dict[str, str]:
    """Names of registered sources by id; empty if fewer than two sources are involved."""
    origins = [write.origin for write in writes] + [document.origin for document in before.values()]
    ids = {origin.source for origin in origins if origin is not None}
    if len(ids) < 2:
        return {}
    rows = await connection.fetch(_SOURCES["named"], project_id, sorted(ids))
    return {row["id"]: row["name"] for row in rows}


def _is_newer(part: Revision, states: Mapping[str, _State]) -> bool:
    state = states.get(part.uri)
    return state is None or state.rank < part.write.rank


def _is_late(part: Revision, states: Mapping[str, _State]) -> bool:
    state = states.get(part.uri)
    return state is not None and state.stored and state.rank > part.write.rank


def _first_conflict(
    write: DocumentWrite,
    newer: Sequence[Revision],
    states: Mapping[str, _State],
    names: Mapping[str, str],
) -> SourceConflict | PreconditionFailed | None:
    conflicts = filter(None, (_conflict(part, states, names) for part in newer))
    return next(conflicts, None) or (_unexpected(write, states) if newer else None)


async def tombstones_below(connection: asyncpg.Connection, project_id: int) -> int:
    """Tombstones may have expired whose ranks begin with less than this; 0: none has."""
    return int(await connection.fetchval(_EXPIRY["tombstones_below"], project_id))


async def _forgotten_below(
    connection: asyncpg.Connection, project_id: int, writes: Sequence[DocumentWrite]
) -> int:
    """The same mark, or 0 if all changes are too young for it."""
    young = position_at(datetime.now(UTC) - _NEVER_EXPIRED)
    if all(write.rank[0] >= young for write in writes):
        return 0
    return await tombstones_below(connection, project_id)


def _outdated(
    write: DocumentWrite, before: Mapping[str, StoredDocument], forgotten: int
) -> OutdatedChange | None:
    if write.rank[0] >= forgotten:
        return None
    missing = [part.uri for part in revisions_of([write]) if part.uri not in before]
    if not missing:
        return None
    return OutdatedChange(
        f"{missing[0]} is not in the index, and the change is older than documents whose deletion "
        "the index does not remember any more",
        "publish the document again, if it still exists",
    )


def _unexpected(write: DocumentWrite, states: Mapping[str, _State]) -> PreconditionFailed | None:
    """Return the reason if a change does not meet the content that it expects."""
    if write.expected_hash is None:
        return None
    uri = write.old_uri or write.uri
    state = states.get(uri)
    if state is None or state.deleted:
        return PreconditionFailed(
            f"{uri} does not exist, but the change expects it to have the content "
            f"{write.expected_hash}",
            "publish the change without expected_hash to create the document",
        )
    if state.content_hash == write.expected_hash:
        return None
    return PreconditionFailed(
        f"{uri} has the content {state.content_hash}, but the change expects {write.expected_hash}",
        "read the document again, and publish the change for its current content",
    )


def _conflict(
    part: Revision, states: Mapping[str, _State], names: Mapping[str, str]
) -> SourceConflict | None:
    state, origin = states.get(part.uri), part.write.origin
    if state is None or state.deleted or state.origin is None or origin is None:
        return None
    owner = state.origin.source
    if owner == origin.source or owner not in names:
        return None
    name = names.get(origin.source, origin.source)
    return SourceConflict(
        f"{part.uri} is a document of source {names[owner]}, so source {name} may not change it",
        "sync one of them with --prefix",
    )
