"""Documents: the fence that decides which change of each uri stands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from events.models import Origin
from events.ranking import Rank, rank_of
from store.digests import TOMBSTONE, document_digest
from store.named_queries import named
from store.origins import columns_of, origin_of
from store.types import DocumentWrite

__all__ = ["Advanced", "Revision", "StoredDocument", "advance", "lock", "newest", "revisions_of"]

_QUERIES = named("documents")


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it was before the batch."""

    document_id: int
    title: str | None
    place: tuple[int, int]
    """Position and partition of the change that it is of."""
    deleted: bool
    origin: Origin | None

    @property
    def rank(self) -> Rank:
        """That of the same change."""
        return rank_of(*self.place, self.origin)


@dataclass(frozen=True, slots=True)
class Advanced:
    """A document that moved on to a newer revision; ``created``: there was none."""

    document_id: int
    created: bool


@dataclass(frozen=True, slots=True)
class Revision:
    """What one change makes of one uri. A rename makes two: its old uri is deleted."""

    uri: str
    write: DocumentWrite
    deleted: bool


def newest(writes: Iterable[DocumentWrite]) -> dict[str, Revision]:
    """The revision of the highest rank of each uri, in order of uri."""
    latest: dict[str, Revision] = {}
    for revision in revisions_of(writes):
        known = latest.get(revision.uri)
        if known is None or known.write.rank < revision.write.rank:
            latest[revision.uri] = revision
    return dict(sorted(latest.items()))


def revisions_of(writes: Iterable[DocumentWrite]) -> Iterator[Revision]:
    """What changes make of their documents, in order of the changes."""
    for write in writes:
        yield Revision(write.uri, write, write.change == "delete")
        if write.old_uri is not None:
            yield Revision(write.old_uri, write, deleted=True)


async def lock(
    connection: asyncpg.Connection, generation_id: int, agent: str, uris: Sequence[str]
) -> dict[str, StoredDocument]:
    """What is stored by uri, held until the transaction ends; always taken in order of uri.

    Not guaranteed: that no other writer creates one of the missing documents before ``advance``.
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
    """Store those revisions that are newer than what is stored; their documents by uri.

    ``equal_too``: also those that are stored.
    """
    rows = [_row(revision) for revision in revisions.values()]
    columns = [list(column) for column in zip(*rows, strict=True)]
    query = _QUERIES["advance_documents"]
    found = await connection.fetch(query, generation_id, agent, *columns, equal_too)
    return {row["uri"]: Advanced(row["id"], row["created"]) for row in found}


def _stored(row: Mapping[str, Any]) -> StoredDocument:
    place = row["position"], row["partition"]
    return StoredDocument(row["id"], row["title"], place, row["deleted"], origin_of(row))


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
