"""Contents that were sent by reference, read from Postgres or the archive."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.errors import UnsupportedContent
from store.archive import Archive
from store.store import Store

__all__ = ["SMALLEST_REFERRED_BYTES", "KeptContents"]

SMALLEST_REFERRED_BYTES = 16 * 2**10
"""Smallest content that may be fetched from the archive by its hash. The archive holds private
contents too: a change that names a hash must not reveal whether a text short enough to be guessed
is stored. Shorter texts are sent in their events."""


@dataclass(frozen=True)
class KeptContents:
    """Reader of contents: new ones are in Postgres, archived and old ones only in the archive."""

    store: Store
    archive: Archive

    async def fetch(self, project: str, sha256: str) -> str:
        """Read a content by its hash in hex.

        Raises:
            UnsupportedContent: it is not stored, or it is short and only in the archive.
            DamagedSegment: the file of the archive that contains it is damaged.
            Unavailable: Postgres or the archive can't be reached.
        """
        try:
            return await self.store.get_content(project, sha256)
        except UnsupportedContent:
            content = await self.archive.content(project, sha256)
            if content is None or len(content.encode()) < SMALLEST_REFERRED_BYTES:
                raise
            return content
