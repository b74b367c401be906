"""Documents, and the fence: of the changes of a uri, the one with the highest rank is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from events.models import Origin
from events.positions import LogPosition, Rank, rank_of
from store.documents.digests import TOMBSTONE, document_digest
from store.postgres.named_queries import named
from store.types import DocumentWrite, columns_of, origin_of

__all__ = ["Advanced", "Revision", "StoredDocument", "advance", "lock", "newest", "revisions_of"]

_QUERIES = named("fence")


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it was before the batch."""

    document_id: int
    title: str | None
    log_position: LogPosition
    """Position and partition of the change that produced this version."""
    deleted: bool
    origin: Origin | None

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
    rows = await connection.fetch(_QUERIES["lock_documents"], generation_id, agent, uris)
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
    return StoredDocument(row["id"], row["title"], log_position, row["deleted"], origin_of(row))


def _row(revision: Revision) -> tuple[object, ...]:
    write = revision.write
    head = revision.uri, write.position, write.partition, revision.deleted, write.published_at
    origin = columns_of(write.origin)
    if revision.deleted:
        return *head, None, write.kind, None, None, None, None, "{}", TOMBSTONE, *origin
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
    )
