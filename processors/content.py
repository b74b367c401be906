"""Contents by hash, read from Postgres or the archive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from events.streams.changes import LoggedChange
from runtime.errors import UnsupportedContent
from store.archive import Archive, DamagedSegment
from store.store import Store

__all__ = ["SMALLEST_REFERRED_BYTES", "Contents", "KeptContents", "Texts"]

SMALLEST_REFERRED_BYTES = 16 * 2**10
"""Smallest content that may be fetched from the archive by its hash. The archive holds private
contents too: a change that names a hash must not reveal whether a text short enough to be guessed
is stored. Shorter texts are sent in their events."""


@dataclass(frozen=True)
class KeptContents:
    """Reader of contents: new ones are in Postgres, archived and old ones only in the archive."""

    store: Store
    archive: Archive

    async def fetch(self, project: str, sha256: str) -> bytes:
        """Read the bytes of a content by its hash in hex.

        Raises:
            UnsupportedContent: it is not stored, or it is short and only in the archive.
            DamagedSegment: the file of the archive that contains it is damaged.
            Unavailable: Postgres or the archive can't be reached.
        """
        try:
            return await self.store.get_content(project, sha256)
        except UnsupportedContent:
            content = await self.archive.content(project, sha256)
            if content is None or len(content) < SMALLEST_REFERRED_BYTES:
                raise
            return content


@dataclass(frozen=True)
class Texts:
    """Contents by SHA-256 in hex. ``damaged``: archive files whose contents can't be read."""

    by_hash: Mapping[str, bytes]
    damaged: tuple[DamagedSegment, ...] = ()

    async def fetch(self, project: str, sha256: str) -> bytes:
        """Return one of the contents.

        Raises:
            UnsupportedContent: it is not among them.
        """
        if sha256 in self.by_hash:
            return self.by_hash[sha256]
        if self.damaged:
            first = self.damaged[0]
            raise UnsupportedContent(f"its content can't be read: {first.message}", first.remedy)
        raise UnsupportedContent(
            f"its content {sha256[:12]}… is neither in the archive nor in Postgres",
            f"publish it to {project} again",
        )


@dataclass(frozen=True)
class Contents:
    """Contents that the changes of a project refer to."""

    project: str
    archive: Archive

    async def of(self, changes: Iterable[LoggedChange]) -> Texts:
        """Read the texts that changes refer to, as far as they can be read.

        Raises:
            Unavailable: Postgres or the archive can't be reached.
        """
        references = (change.event.data.content_ref for change in changes)
        wanted = {reference.sha256 for reference in references if reference is not None}
        if not wanted:
            return Texts({})
        damaged: list[DamagedSegment] = []
        by_hash = await self.archive.contents(self.project, wanted, damaged=damaged.append)
        return Texts(by_hash, tuple(damaged))
