"""Contents that travelled by reference, from wherever they lie by now."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.errors import UnsupportedContent
from store.archive import Archive
from store.store import Store

__all__ = ["KeptContents"]


@dataclass(frozen=True)
class KeptContents:
    """Postgres has them at first; once they are archived, and old, only the archive does."""

    store: Store
    archive: Archive

    async def fetch(self, project: str, sha256: str) -> str:
        """Content by its hash in hex.

        Raises:
            UnsupportedContent: it is nowhere.
            DamagedSegment: the file of the archive that has it is damaged.
            Unavailable: Postgres or the archive can't be reached.
        """
        try:
            return await self.store.get_content(project, sha256)
        except UnsupportedContent:
            content = await self.archive.content(project, sha256)
            if content is None:
                raise
            return content
