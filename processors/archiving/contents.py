"""Contents that travelled by reference, from wherever they lie by now."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.errors import UnsupportedContent
from store.archive import Archive
from store.store import Store

__all__ = ["SMALLEST_REFERRED_BYTES", "KeptContents"]

SMALLEST_REFERRED_BYTES = 16 * 2**10
"""Every content is archived by its hash, private ones too. A change that names a hash must not show
whether a text is there that is short enough to be guessed; such texts travel in their events."""


@dataclass(frozen=True)
class KeptContents:
    """Postgres has them at first; once they are archived, and old, only the archive does."""

    store: Store
    archive: Archive

    async def fetch(self, project: str, sha256: str) -> str:
        """Content by its hash in hex.

        Raises:
            UnsupportedContent: it is nowhere, or in the archive alone and short.
            DamagedSegment: the file of the archive that has it is damaged.
            Unavailable: Postgres or the archive can't be reached.
        """
        try:
            return await self.store.get_content(project, sha256)
        except UnsupportedContent:
            content = await self.archive.content(project, sha256)
            if content is None or len(content.encode()) < SMALLEST_REFERRED_BYTES:
                raise
            return content
