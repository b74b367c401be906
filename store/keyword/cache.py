"""Segments that this process has read; they never change, so they need not be read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from store.keyword.scoring import Segment

__all__ = ["SegmentCache"]

MAX_GENERATIONS = 1024
"""Dropped generations go in the end, also those that never held anything."""

Segments = Mapping[int, Segment]
"""Segments of a generation by id."""


class SegmentCache:
    """The segments of the generations that were asked last, up to a size and a number of them."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._generations: OrderedDict[int, tuple[int, Segments]] = OrderedDict()

    def get(self, generation_id: int) -> Segments:
        """The generation's segments at hand; some may be missing or merged away by now."""
        if generation_id not in self._generations:
            return {}
        self._generations.move_to_end(generation_id)
        return self._generations[generation_id][1]

    def put(self, generation_id: int, segments: Segments) -> None:
        """Keep these, and no others of the generation; drop the generations that no longer fit."""
        size_bytes = sum(segment.size_bytes for segment in segments.values())
        self._generations[generation_id] = (size_bytes, segments)
        self._generations.move_to_end(generation_id)
        while self.size_bytes > self._limit_bytes or len(self._generations) > MAX_GENERATIONS:
            self._generations.popitem(last=False)

    @property
    def size_bytes(self) -> int:
        """Memory in use, about."""
        return sum(size_bytes for size_bytes, _ in self._generations.values())
