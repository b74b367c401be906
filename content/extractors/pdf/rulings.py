"""Rulings of a page: the horizontal and vertical edges of what is drawn on it."""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pypdfium2.raw as pdfium

from content.extractors.pdf.words import turned
from content.rendition import Box

__all__ = ["Edge", "Rulings", "joined_edges", "read_rulings"]

MOST_PATHS = 20_000
MOST_EDGES = 20_000
_DEEPEST_FORM = 3
_THIN = 3.0  # points: a path that is thinner is a line
_SMALL = 5.9  # points: no edge of a path that is no larger is long enough
_SHORTEST_ACROSS = 8.0  # points
_SHORTEST_DOWN = 6.0  # points
_LEVEL = 1.0  # points that the ends of a straight edge may differ by
_MOST_SEGMENTS = 400  # of one path: drawings have more, and are not ruled
_COLLINEAR = 2.0  # points
_BROKEN = 4.0  # points between two parts of one edge


_Point = tuple[float, float]


class Edge(NamedTuple):
    """Horizontal or vertical edge at height or distance ``at``, from ``start`` to ``end``."""

    at: float
    start: float
    end: float


@dataclass(slots=True)
class Rulings:
    """Edges of one page, and the number of its images. Lengths are in points."""

    across: list[Edge] = field(default_factory=list)
    down: list[Edge] = field(default_factory=list)
    images: int = 0
    paths: int = 0

    @property
    def full(self) -> bool:
        """True when no more paths are to be looked at."""
        return self.paths >= MOST_PATHS or len(self.across) + len(self.down) >= MOST_EDGES


class _Transform(NamedTuple):
    """Affine transformation, with the letters of PDF."""

    a: float = 1.0
    b: float = 0.0
    c: float = 0.0
    d: float = 1.0
    e: float = 0.0
    f: float = 0.0

    @property
    def is_upright(self) -> bool:
        """True if it leaves horizontal and vertical lines so."""
        return self.b == self.c == 0

    def point(self, x: float, y: float) -> _Point:
        return self.a * x + self.c * y + self.e, self.b * x + self.d * y + self.f

    def after(self, inner: _Transform) -> _Transform:
        """Return the transformation that applies ``inner`` first."""
        return _Transform(
            self.a * inner.a + self.c * inner.b,
            self.b * inner.a + self.d * inner.b,
            self.a * inner.c + self.c * inner.d,
            self.b * inner.c + self.d * inner.d,
            *self.point(inner.e, inner.f),
        )


def read_rulings(page: Any, quarters: int) -> Rulings:
    """Read the rulings of one of pdfium's pages, upright after ``quarters`` turns clockwise."""
    rulings = Rulings()
    objects = (
        pdfium.FPDFPage_GetObject(page, index)
        for index in range(pdfium.FPDFPage_CountObjects(page))
    )
    _Reader(rulings, quarters).read(objects, _Transform(), 0)
    return rulings


class _Reader:
    def __init__(self, rulings: Rulings, quarters: int) -> None:
        self._rulings = rulings
        self._quarters = quarters
        self._bounds = tuple(ctypes.c_float() for _ in range(4))
        self._matrix = pdfium.FS_MATRIX()
        self._x, self._y = ctypes.c_float(), ctypes.c_float()

    def read(self, objects: Iterable[Any], transform: _Transform, depth: int) -> None:
        """Collect the edges of the objects, and of those inside forms among them."""
        for item in objects:
            if self._rulings.full:
                return
            match pdfium.FPDFPageObj_GetType(item):
                case pdfium.FPDF_PAGEOBJ_IMAGE:
                    self._rulings.images += 1
                case pdfium.FPDF_PAGEOBJ_PATH:
                    self._rulings.paths += 1
                    self._path(item, transform)
                case pdfium.FPDF_PAGEOBJ_FORM if depth < _DEEPEST_FORM:
                    inside = (
                        pdfium.FPDFFormObj_GetObject(item, index)
                        for index in range(max(0, pdfium.FPDFFormObj_CountObjects(item)))
                    )
                    self.read(inside, transform.after(self._transform(item)), depth + 1)

    def _transform(self, item: Any) -> _Transform:
        matrix = self._matrix
        if not pdfium.FPDFPageObj_GetMatrix(item, matrix):
            return _Transform()
        return _Transform(matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f)

    def _path(self, item: Any, transform: _Transform) -> None:
        left, bottom, right, top = self._bounds
        if not pdfium.FPDFPageObj_GetBounds(item, left, bottom, right, top):
            return
        start = transform.point(left.value, bottom.value)
        end = transform.point(right.value, top.value)
        width, height = abs(end[0] - start[0]), abs(end[1] - start[1])
        if width <= _THIN or height <= _THIN:
            if max(width, height) > _THIN:
                self._add(start, end, _THIN)
            return
        if width <= _SMALL and height <= _SMALL and transform.is_upright:
            return
        count = pdfium.FPDFPath_CountSegments(item)
        if 2 <= count <= _MOST_SEGMENTS:
            placed = transform.after(self._transform(item))
            for first, last in self._straight_parts(item, count):
                self._add(placed.point(*first), placed.point(*last), _LEVEL)

    def _straight_parts(self, path: Any, count: int) -> Iterator[tuple[_Point, _Point]]:
        """Yield the ends of a path's straight segments, in the path's own coordinates."""
        x, y = self._x, self._y
        start: _Point | None = None
        previous: _Point | None = None
        for index in range(count):
            segment = pdfium.FPDFPath_GetPathSegment(path, index)
            if not pdfium.FPDFPathSegment_GetPoint(segment, x, y):
                continue
            point = (x.value, y.value)
            kind = pdfium.FPDFPathSegment_GetType(segment)
            if kind == pdfium.FPDF_SEGMENT_MOVETO:
                start = point
            elif kind == pdfium.FPDF_SEGMENT_LINETO and previous is not None:
                yield previous, point
            previous = point
            if pdfium.FPDFPathSegment_GetClose(segment) and start is not None:
                yield point, start
                previous = start

    def _add(self, start: _Point, end: _Point, level: float) -> None:
        """Keep the edge between two points if it is horizontal or vertical, and long enough."""
        (left, bottom), (right, top) = start, end
        if abs(right - left) > level and abs(top - bottom) > level:
            return
        if left > right:
            left, right = right, left
        if bottom > top:
            bottom, top = top, bottom
        if self._quarters:
            left, bottom, right, top = turned(Box(left, bottom, right, top), self._quarters)
        if top - bottom <= level and right - left > _SHORTEST_ACROSS:
            self._rulings.across.append(Edge((bottom + top) / 2, left, right))
        elif right - left <= level and top - bottom > _SHORTEST_DOWN:
            self._rulings.down.append(Edge((left + right) / 2, bottom, top))


def joined_edges(edges: Iterable[Edge]) -> list[Edge]:
    """Join collinear edges that overlap or nearly touch."""
    groups: list[list[Edge]] = []
    for edge in sorted(edges):
        if groups and edge.at - groups[-1][-1].at <= _COLLINEAR:
            groups[-1].append(edge)
        else:
            groups.append([edge])
    return [joined for group in groups for joined in _joined_group(group)]


def _joined_group(edges: Sequence[Edge]) -> Iterator[Edge]:
    at = sum(edge.at for edge in edges) / len(edges)
    spans = sorted((edge.start, edge.end) for edge in edges)
    start, end = spans[0]
    for following_start, following_end in spans[1:]:
        if following_start <= end + _BROKEN:
            end = max(end, following_end)
        else:
            yield Edge(at, start, end)
            start, end = following_start, following_end
    yield Edge(at, start, end)


def near(edges: Sequence[Edge], low: float, high: float) -> Sequence[Edge]:
    """Return the edges of a sorted sequence that lie from ``low`` to ``high``."""
    first = bisect_left(edges, (low,))
    last = bisect_left(edges, (high,), lo=first)
    return edges[first:last]
