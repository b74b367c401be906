"""One project under examination, with the data that its checks read."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import asyncpg

from events.names import DocumentKey, LogPosition
from events.server.connection import redis_errors
from events.streams.changes import LoggedChange
from events.streams.entries import entries_of
from processors.doctor.findings import Finding, Severity, Subject
from processors.doctor.stream_snapshot import StreamEntry, Streams, logged
from processors.replay.fold import Fold, FoldedDocument
from processors.wiring.operator_tools import OperatorTools
from store.archive import Archive, DamagedSegment
from store.documents.digests import IndexDigest, StoredDigest
from store.generations.catalog import Generation, Recipe

__all__ = [
    "LogSnapshot",
    "ProjectContext",
    "StoredIndex",
    "contents_in_streams",
    "read_log",
    "whole_changes",
]


@dataclass(frozen=True)
class ProjectContext:
    """A project, its live generation, its log, and a snapshot of its rows.

    ``configured`` is the recipe of the settings, or None if they do not choose one. ``lease``: a
    pending entry that is idle for this long has no owner any more. ``connection`` reads the
    snapshot. ``sources``: names of the registered sources by id. Tombstones may have expired whose
    ranks begin with less than ``tombstones_below``.
    """

    project: str
    generation: Generation
    tools: OperatorTools
    configured: Recipe | None
    lease: timedelta
    log: LogSnapshot
    connection: asyncpg.Connection
    index: StoredIndex
    sources: Mapping[str, str]
    tombstones_below: int = 0

    def label(self, key: DocumentKey) -> str:
        """Readable name of a document, with its source or private agent if it has one."""
        agent, uri = key
        if agent:
            return f"{uri} (private to {agent})"
        stored, last = self.index.differing.get(key), self.log.fold.find(key)
        origin = None if last is None else last.origin
        if origin is None and stored is not None:
            origin = stored.origin
        if origin is None:
            return uri
        return f"{uri} (source {self.sources.get(origin.source, origin.source)})"

    def findings(
        self,
        name: str,
        subjects: list[Subject],
        meaning: str,
        *,
        remedy: str = "",
        severity: Severity = Severity.PROBLEM,
    ) -> list[Finding]:
        """A list with one finding, or an empty list if there are no subjects.

        The default ``remedy`` is the doctor's repair command.
        """
        if not subjects:
            return []
        remedy = remedy or f"headrace doctor --project {self.project} --repair"
        return [Finding(name, self.project, tuple(subjects), meaning, remedy, severity)]


class StoredIndex:
    """The documents of a generation, compared with the fold of the log.

    They are added one by one, in order of agent and uri, and only those are kept that differ from
    the fold, or whose rows differ from what was written. ``living``: number of documents that are
    not deleted.
    """

    def __init__(self, fold: Fold) -> None:
        self.differing: dict[DocumentKey, StoredDigest] = {}
        self.living = 0
        self._fold = fold
        self._digest = IndexDigest()
        self._added = bytearray(len(fold))

    def add(self, stored: StoredDigest) -> None:
        """Compare the next document."""
        key = DocumentKey(stored.agent, stored.uri)
        self.living += not stored.deleted
        self._digest.add(stored)
        row = self._fold.row_of(key)
        if row is not None:
            self._added[row] = True
        if row is None or stored.recorded != stored.digest or _differs(self._fold[row], stored):
            self.differing[key] = stored

    def absent(self) -> Iterator[FoldedDocument]:
        """Documents that the fold has and the index lacks, after the last one was added."""
        return (self._fold[row] for row, added in enumerate(self._added) if not added)

    def digest(self) -> str:
        """Digest of the index, in hex."""
        return self._digest.digest().hex()


def _differs(last: FoldedDocument, stored: StoredDigest) -> bool:
    return (stored.log_position, stored.deleted, stored.content_hash, stored.origin) != (
        last.log_position,
        last.deleted,
        last.content_hash,
        last.origin,
    )


@dataclass
class LogSnapshot:
    """The log of one project, read before its rows.

    ``archived``: log positions of the changes in the streams that the archive contains too.
    ``positions``: positions of all changes read. ``letters``: ids of dead letters by the log
    position of their change. ``damaged``: archive files that can't be read completely, by path.
    """

    streams: Streams
    entries: Sequence[StreamEntry]
    fold: Fold
    letters: Mapping[LogPosition, str]
    archived: set[LogPosition] = field(default_factory=set)
    positions: array[int] = field(default_factory=lambda: array("q"))
    damaged: dict[str, DamagedSegment] = field(default_factory=dict)

    def handled(self, group: str) -> set[LogPosition]:
        """Log positions of the changes in the streams that a group has acknowledged."""
        return {
            entry.change.log_position
            for entry in self.entries
            if self.streams.handled(group, entry)
        }


async def read_log(
    project: str,
    archive: Archive,
    streams: Streams,
    rejected: set[LogPosition],
    letters: Mapping[LogPosition, str],
) -> LogSnapshot:
    """Read and fold the log.

    The streams were read first: a change that was trimmed since then is in the archive.
    ``rejected`` changes have no effect.

    Raises:
        Unavailable: the archive can't be read.
    """
    log = LogSnapshot(streams, streams.of(project), Fold(left_out=rejected), letters)
    for entry in log.entries:
        log.fold.add(entry.change, entry.own.position)
        log.positions.append(entry.change.position)
    in_streams = {entry.change.log_position for entry in log.entries}

    def note(error: DamagedSegment) -> None:
        log.damaged[error.path] = error

    async for change in archive.events(project, damaged=note):
        log.fold.add(change)
        log.positions.append(change.position)
        if change.log_position in in_streams:
            log.archived.add(change.log_position)
    return log


async def contents_in_streams(context: ProjectContext, hashes: Collection[str]) -> dict[str, bytes]:
    """Read contents by hash in hex, as far as the streams have them.

    Raises:
        Unavailable: Redis can't be reached.
    """
    wanted = {
        reference.sha256: entry
        for entry in context.log.entries
        if (reference := entry.change.event.data.content_ref) is not None
        and reference.sha256 in hashes
    }
    contents: dict[str, bytes] = {}
    for sha256, entry in wanted.items():
        async for change in whole_changes(context, [entry]):
            body = change.event.data.body
            if body is not None:
                contents[sha256] = body.encode() if isinstance(body, str) else body
    return contents


async def whole_changes(
    context: ProjectContext, entries: Iterable[StreamEntry]
) -> AsyncIterator[LoggedChange]:
    """Read changes with their contents; changes that were trimmed since then are left out.

    Raises:
        Unavailable: Redis can't be reached.
    """
    tools = context.tools
    for entry in entries:
        key = tools.names.stream(*entry.stream)
        with redis_errors():
            reply = await tools.redis.xrange(key, entry.entry_id, entry.entry_id)
        for stored in entries_of(reply):
            change = logged(stored, entry.stream)
            if change is not None:
                yield change
