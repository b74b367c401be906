"""Cache of the segments that this process has read; they are immutable."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from store.keyword.scoring import Segment

__all__ = ["SegmentCache"]

MAX_GENERATIONS = 1024
"""The limit eventually evicts dropped generations, also those without segments."""

Segments = Mapping[int, Segment]
"""Segments of a generation by id."""


class SegmentCache:
    """Segments of the generations searched last, up to a total size and a number of generations."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._generations: OrderedDict[int, tuple[int, Segments]] = OrderedDict()

    def get(self, generation_id: int) -> Segments:
        """Cached segments of the generation; some may be missing, or may have been merged since."""
        if generation_id not in self._generations:
            return {}
        self._generations.move_to_end(generation_id)
        return self._generations[generation_id][1]

    def put(self, generation_id: int, segments: Segments) -> None:
        """Replace the segments of the generation, and evict generations that no longer fit."""
        size_bytes = sum(segment.size_bytes for segment in segments.values())
        self._generations[generation_id] = (size_bytes, segments)
        self._generations.move_to_end(generation_id)
        while self.size_bytes > self._limit_bytes or len(self._generations) > MAX_GENERATIONS:
            self._generations.popitem(last=False)

    @property
    def size_bytes(self) -> int:
        """Approximate memory in use."""
        return sum(size_bytes for size_bytes, _ in self._generations.values())
