"""Conflicts between sources, and late changes, in a batch of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import asyncpg

from events.models import Origin
from events.positions import Rank
from runtime.errors import SourceConflict
from store.documents.fence import Advanced, Revision, StoredDocument, revisions_of
from store.postgres.connection import WriteConflict
from store.postgres.named_queries import named
from store.types import DocumentWrite

__all__ = ["LateChanges", "Ruling", "check_unseen", "rule"]

_QUERIES = named("sources")


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

    conflicts: dict[int, SourceConflict] = field(default_factory=dict)
    late: list[DocumentWrite] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _State:
    """State of a document at a point of the batch; ``stored``: not changed by the batch so far."""

    rank: Rank
    origin: Origin | None
    deleted: bool
    stored: bool = False


async def rule(
    connection: asyncpg.Connection,
    project_id: int,
    writes: Sequence[DocumentWrite],
    before: Mapping[str, StoredDocument],
) -> Ruling:
    """Determine which changes cannot be applied, one after the other by rank.

    A change of a source must not touch an existing document of another registered source. If the
    change is a rename, neither of its documents changes.
    """
    names = await _names(connection, project_id, writes, before)
    states = {
        uri: _State(document.rank, document.origin, document.deleted, stored=True)
        for uri, document in before.items()
    }
    ruling = Ruling()
    for index, write in sorted(enumerate(writes), key=lambda pair: pair[1].rank):
        newer = [part for part in revisions_of([write]) if _is_newer(part, states)]
        conflict = next(filter(None, (_conflict(part, states, names) for part in newer)), None)
        if conflict is not None:
            ruling.conflicts[index] = conflict
            continue
        if any(_is_late(part, states) for part in revisions_of([write])):
            ruling.late.append(write)
        for part in newer:
            states[part.uri] = _State(write.rank, write.origin, part.deleted)
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
    rows = await connection.fetch(_QUERIES["named"], project_id, sorted(ids))
    return {row["id"]: row["name"] for row in rows}


def _is_newer(part: Revision, states: Mapping[str, _State]) -> bool:
    state = states.get(part.uri)
    return state is None or state.rank < part.write.rank


def _is_late(part: Revision, states: Mapping[str, _State]) -> bool:
    state = states.get(part.uri)
    return state is not None and state.stored and state.rank > part.write.rank


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
