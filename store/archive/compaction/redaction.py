"""Purges documents from files: removes their text from changes, and drops unreferenced contents.

A change becomes a delete, with the same log position, id and time. So the log stays complete, and
once a purged document is deleted, the log has the same result for every document as before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from events.names import DocumentKey, LogPosition
from store.archive.compaction.content_merge import ContentMerging
from store.archive.compaction.event_merge import read_records
from store.archive.compaction.replacement import Replacing
from store.archive.compaction.retention import Record
from store.archive.damage import DamagedSegment
from store.archive.event_files import Line
from store.archive.files import Files
from store.archive.index import Index, Segment
from store.archive.orphans import adopt_orphans, find_orphans, remove_retired
from store.archive.shared_upkeep import SharedFiles
from store.archive.writer import Writing, writing

__all__ = ["Purged", "Redactor", "redacted"]

_RETAINED = ("project", "agent", "origin")
_AHEAD = timedelta(days=1)


@dataclass(slots=True)
class Purged:
    """Effect of a purge on the files of a project, or its extent before the purge.

    ``changes``: number of changes with text to remove. ``hashes`` (hex): contents that the
    documents' changes refer to; ``needed``: contents that other changes refer to.
    ``log_positions``: those of the documents' changes. ``young``: number of files that are not in
    the index, but too young to count as orphans.
    """

    changes: int = 0
    files: int = 0
    contents: int = 0
    hashes: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    log_positions: set[LogPosition] = field(default_factory=set)
    damaged: list[DamagedSegment] = field(default_factory=list)
    young: int = 0


def redacted(line: bytes, before: Mapping[DocumentKey, LogPosition]) -> bytes | None:
    """Line without its change's text, if the change is before the document's limit; else None."""
    record = Record.of(line)
    limit = before.get(record.documents[0])
    if limit is None or record.log_position >= limit:
        return None
    parsed = json.loads(line)
    data: dict[str, Any] = parsed["event"]["data"]
    retained = {name: data[name] for name in _RETAINED if name in data}
    retained |= {"uri": data.get("old_uri") or data["uri"], "change": "delete"}
    if retained == data:
        return None
    parsed["event"]["data"] = retained
    return json.dumps(parsed, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Redactor:
    """Purges documents from the files of one project at a time."""

    def __init__(
        self, index: Index, replacing: Replacing, storage: Files, shared: SharedFiles
    ) -> None:
        self._index = index
        self._replacing = replacing
        self._storage = storage
        self._shared = shared

    async def survey(self, project_id: int, before: Mapping[DocumentKey, LogPosition]) -> Purged:
        """Determine what a purge would remove, without changing anything."""
        purged = Purged()
        for segment in await self._index.segments(project_id):
            try:
                await asyncio.to_thread(self._learn, segment, before, purged)
            except DamagedSegment as error:
                purged.damaged.append(error)
        return purged

    async def purge(
        self,
        project: str,
        project_id: int,
        before: Mapping[DocumentKey, LogPosition],
        grace: timedelta,
    ) -> Purged | None:
        """Rewrite the files with changes of documents before a log position each.

        Returns None, and does nothing, while a compaction runs. Replaced files are removed at once:
        a reader of such a file continues with its successor.

        Raises:
            Unavailable: another process purges, and so changes the same shared files.
        """
        async with self._replacing.alone(project_id) as is_locked:
            if not is_locked:
                return None
            async with self._shared.alone():
                return await self._purge(project, project_id, before, datetime.now(UTC), grace)

    async def _purge(
        self,
        project: str,
        project_id: int,
        before: Mapping[DocumentKey, LogPosition],
        now: datetime,
        grace: timedelta,
    ) -> Purged:
        await self._shared.adopt_orphans(now - grace)
        await adopt_orphans(self._index, self._storage, project, project_id, now - grace)
        done = await self.survey(project_id, before)
        for segment in await self._index.segments(project_id):
            await self._rewrite(project_id, segment, before)
        contents = ContentMerging(
            project_id,
            self._index,
            self._storage,
            self._replacing,
            older_than=now + _AHEAD,
            thorough=True,
        )
        await contents.run()
        done.contents = contents.dropped_contents
        done.damaged += contents.damaged
        replaced, damaged = await self._shared.erase(project_id)
        done.damaged += damaged
        done.files = replaced + await remove_retired(
            self._index, self._storage, project_id, now + _AHEAD
        )
        orphans = await find_orphans(self._index, self._storage, project_id, now)
        done.young = len(orphans) + len(await self._shared.young_of(project_id))
        return done

    def _learn(
        self, segment: Segment, before: Mapping[DocumentKey, LogPosition], purged: Purged
    ) -> None:
        """Record what a file holds of the documents; blocks."""
        for record, line in read_records(self._storage, segment):
            purged.changes += redacted(line, before) is not None
            limit = before.get(record.documents[0])
            sha256 = None if record.content is None else record.content.hex()
            if limit is not None and record.log_position < limit:
                purged.log_positions.add(record.log_position)
                if sha256 is not None:
                    purged.hashes.add(sha256)
            elif sha256 is not None:
                purged.needed.add(sha256)

    async def _rewrite(
        self, project_id: int, segment: Segment, before: Mapping[DocumentKey, LogPosition]
    ) -> None:
        try:
            lines, changed = await asyncio.to_thread(self._lines, segment, before)
        except DamagedSegment:
            return
        if not changed:
            return
        files = Writing(self._storage, await self._index.folder(project_id))
        async with writing(files):
            await asyncio.to_thread(files.write_lines, lines)
            await self._replacing.events(
                project_id, [segment.segment_id], files.files, dropped=0, complete_from=None
            )

    def _lines(
        self, segment: Segment, before: Mapping[DocumentKey, LogPosition]
    ) -> tuple[Sequence[Line], int]:
        """New lines of a file, and the number of lines that differ; blocks."""
        lines = []
        changed = 0
        for record, line in read_records(self._storage, segment):
            new = redacted(line, before)
            changed += new is not None
            lines.append(Line(record.position, line if new is None else new))
        return lines, changed
