"""Segments that this process has read; they never change, so they need not be read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from store.keyword.scoring import Segment

__all__ = ["SegmentCache"]

Segments = Mapping[int, Segment]
"""Segments of a project by id."""


class SegmentCache:
    """The segments of the projects that were asked last, up to a size."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._projects: OrderedDict[int, tuple[int, Segments]] = OrderedDict()

    def get(self, project_id: int) -> Segments:
        """The project's segments at hand; some may be missing or merged away by now."""
        if project_id not in self._projects:
            return {}
        self._projects.move_to_end(project_id)
        return self._projects[project_id][1]

    def put(self, project_id: int, segments: Segments) -> None:
        """Keep these, and no others of the project; drop the projects that no longer fit."""
        size_bytes = sum(segment.size_bytes for segment in segments.values())
        self._projects[project_id] = (size_bytes, segments)
        self._projects.move_to_end(project_id)
        while self._projects and self.size_bytes > self._limit_bytes:
            self._projects.popitem(last=False)

    @property
    def size_bytes(self) -> int:
        """Memory in use, about."""
        return sum(size_bytes for size_bytes, _ in self._projects.values())
