"""The archive: every change of every document, compressed, in files outside Redis."""

from store.archive.archive import Archive
from store.archive.damage import DamagedSegment

__all__ = ["Archive", "DamagedSegment"]
