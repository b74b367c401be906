"""The log of one project as evidence: the fold of archive and streams, and what each contains."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from processors.reconciling.stream_reading import StreamEntry, Streams
from processors.replaying.folding import Fold, Order
from store.archive import Archive, DamagedSegment

__all__ = ["Evidence", "gather"]


@dataclass
class Evidence:
    """The log of one project.

    ``archived``: log positions of the changes in the streams that the archive contains too.
    ``positions``: positions of all changes read. ``letters``: ids of dead letters by the log
    position of their change. ``damaged``: archive files that can't be read completely, by path.
    """

    streams: Streams
    entries: Sequence[StreamEntry]
    fold: Fold
    letters: Mapping[Order, str]
    archived: set[Order] = field(default_factory=set)
    positions: array[int] = field(default_factory=lambda: array("q"))
    damaged: dict[str, DamagedSegment] = field(default_factory=dict)

    def handled(self, group: str) -> set[Order]:
        """Log positions of the changes in the streams that a group has acknowledged."""
        return {entry.change.order for entry in self.entries if self.streams.handled(group, entry)}


async def gather(
    project: str,
    archive: Archive,
    streams: Streams,
    rejected: set[Order],
    letters: Mapping[Order, str],
) -> Evidence:
    """Fold the log.

    The streams were read first: a change that was trimmed since then is in the archive.
    ``rejected`` changes have no effect.

    Raises:
        Unavailable: the archive can't be read.
    """
    evidence = Evidence(streams, streams.of(project), Fold(left_out=rejected), letters)
    for entry in evidence.entries:
        evidence.fold.add(entry.change)
        evidence.positions.append(entry.change.position)
    in_streams = {entry.change.order for entry in evidence.entries}

    def note(error: DamagedSegment) -> None:
        evidence.damaged[error.path] = error

    async for change in archive.events(project, damaged=note):
        evidence.fold.add(change)
        evidence.positions.append(change.position)
        if change.order in in_streams:
            evidence.archived.add(change.order)
    return evidence
