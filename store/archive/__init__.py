"""The archive: every change of every document, in compressed files outside Redis."""

from store.archive.archive import Archive
from store.archive.damage import DamagedSegment

__all__ = ["Archive", "DamagedSegment"]
