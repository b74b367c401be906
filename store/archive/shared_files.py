"""Shared files, each of which holds the changes that several projects published at the same time.

A shared file has parts, each of one project and one kind: contents or events. A part consists of
blocks, as a whole file of a project does, and the index has its path: ``FILE#START-END``. The last
block of the file lists the parts, so that they can be entered again if the index was lost.

Compaction copies each part into a file of its project. Then the shared file is removed, see
``store.archive.shared_upkeep``.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import Literal
from uuid import uuid4

import asyncpg
import structlog
from pydantic import BaseModel, ValidationError

from events.streams.changes import LoggedChange
from runtime.errors import Unavailable
from store.archive.blocks import BadBlock, Compressor, Decompressor, intact_blocks
from store.archive.claims import Claims, claim
from store.archive.files import Files, part_path
from store.archive.index import Index, PartsOfProject
from store.archive.writer import LONGEST_S, Writing
from store.postgres.connection import WriteConflict

__all__ = ["Part", "SharedAppender", "SharedFile", "parts_of"]

log = structlog.get_logger(__name__)

_MOST_PROJECTS = 250
"""Projects per file. Its entry holds a lock of each project, and Postgres has room for some
thousand locks."""


class Part(BaseModel):
    """Location of a part: offsets of its first byte, and of the first byte after it."""

    project: str
    project_id: int
    kind: Literal["events", "contents"]
    start: int
    end: int


class _PartList(BaseModel):
    parts: list[Part]


@dataclass(slots=True)
class SharedFile:
    """A shared file that is being built. ``path``: where it will be written."""

    path: str
    _data: list[bytes] = field(default_factory=list)
    _parts: list[Part] = field(default_factory=list)
    _size: int = 0

    @classmethod
    def new(cls, folder: str) -> SharedFile:
        """Begin a file with a unique name in a folder."""
        return cls(f"{folder}/{uuid4().hex}.zst")

    def add(self, part: Part, data: bytes) -> str:
        """Append a part, whose offsets do not count; return its path."""
        end = self._size + len(data)
        self._parts.append(part.model_copy(update={"start": self._size, "end": end}))
        self._data.append(data)
        path = part_path(self.path, self._size, end)
        self._size = end
        return path

    @property
    def data(self) -> bytes:
        """Contents of the file: the parts, and the block that lists them."""
        raw = _PartList(parts=self._parts).model_dump_json().encode() + b"\n"
        last = Compressor().block(raw, hashlib.sha256(raw).digest())
        return b"".join([*self._data, last])


def parts_of(data: bytes) -> list[Part]:
    """Parts of a shared file, as its last block lists them.

    Raises:
        BadBlock: the file is not intact.
    """
    *_, last = intact_blocks(data)
    frame = data[last.start : last.start + last.size]
    raw = Decompressor().raw(frame, last.raw_size, last.sha256)
    try:
        return _PartList.model_validate_json(raw).parts
    except ValidationError:
        raise BadBlock("its last block does not list its parts") from None


class _PartWriting(Writing):
    """Writes parts of a shared file."""

    def __init__(self, storage: Files, file: SharedFile, project: str, project_id: int) -> None:
        super().__init__(storage, file.path)
        self._file = file
        self._project = project
        self._project_id = project_id

    def put(self, kind: Literal["events", "contents"], name: str, data: bytes) -> str:
        """Append data to the shared file; return the path of the part."""
        part = Part(project=self._project, project_id=self._project_id, kind=kind, start=0, end=0)
        return self._file.add(part, data)


class SharedAppender:
    """Archives changes of several projects in shared files.

    The number of requests to Postgres and to the storage does not grow with the number of projects.
    """

    def __init__(self, index: Index, storage: Files) -> None:
        self._index = index
        self._storage = storage

    async def append(self, changes: Mapping[int, Sequence[LoggedChange]]) -> set[int]:
        """Archive changes by project id; return the projects whose changes are archived.

        Left out is a project one of whose contents is neither in its events nor archived: it can be
        large, and gets files of its own. The same holds if such a content was dropped in between,
        and for the projects of a file that could not be written or entered.

        Raises:
            Unavailable: Postgres cannot be reached.
        """
        claims = await asyncio.to_thread(_claim_all, changes)
        archived = await self._index.archived_of_projects(
            {project_id: claimed.contents for project_id, claimed in claims.items()}
        )
        complete = {
            project_id: claimed
            for project_id, claimed in claims.items()
            if claimed.contents.keys() <= claimed.inline.keys() | archived.get(project_id, set())
        }
        entered: set[int] = set()
        remaining = iter(complete.items())
        while group := dict(islice(remaining, _MOST_PROJECTS)):
            if len(group) > 1:
                entered |= await self._append(group, archived)
        return entered

    async def _append(
        self, claims: Mapping[int, Claims], archived: Mapping[int, set[str]]
    ) -> set[int]:
        """Write and enter a file; return its projects, or none if that failed."""
        file = SharedFile.new(await self._index.shared_folder())
        try:
            parts = await asyncio.to_thread(self._write, file, claims, archived)
            return await self._index.enter_shared(file.path, parts, claims.keys())
        except Unavailable as error:
            log.info("archive.append_divided", projects=len(claims), reason=str(error))
            if isinstance(error, WriteConflict):
                await asyncio.to_thread(self._storage.remove, file.path)
        except asyncpg.UniqueViolationError:
            log.warning("archive.append_divided", projects=len(claims), reason="it was adopted")
        except Exception:
            log.exception("archive.append_divided", projects=len(claims))
            await asyncio.to_thread(self._storage.remove, file.path)
        return set()

    def _write(
        self, file: SharedFile, claims: Mapping[int, Claims], archived: Mapping[int, set[str]]
    ) -> list[PartsOfProject]:
        began = monotonic()
        written = []
        for project_id, claimed in claims.items():
            archived_hashes = archived.get(project_id, set())
            project = claimed.changes[0].event.data.project
            parts = _PartWriting(self._storage, file, project, project_id)
            parts.write_contents(
                {
                    sha256: raw
                    for sha256, raw in claimed.inline.items()
                    if sha256 not in archived_hashes
                }
            )
            parts.write_events(claimed.changes)
            event_ids = [change.event.id for change in claimed.changes]
            needed = archived_hashes & claimed.contents.keys()
            written.append(PartsOfProject(project_id, parts.files, needed, event_ids))
        self._storage.write(file.path, file.data)
        if monotonic() - began > LONGEST_S:
            raise Unavailable("writing to the archive took too long; it will be tried again")
        return written


def _claim_all(changes: Mapping[int, Sequence[LoggedChange]]) -> dict[int, Claims]:
    return {project_id: claim(of_project) for project_id, of_project in sorted(changes.items())}
