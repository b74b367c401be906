"""Outline of a document: the titles of its bookmarks, and the pages that they lead to."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pypdfium2.raw as pdfium

from content.extractors.pdf.document import read_string

__all__ = ["OutlineEntry", "read_outline"]

MOST_ENTRIES = 5_000
DEEPEST_LEVEL = 6
_LONGEST_TITLE = 300  # characters


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """Title at level 1 (the outermost) or below, and the index of its page.

    ``top`` is the height on that page, in points, where the outline gives it.
    """

    title: str
    level: int
    page: int
    top: float | None = None


def read_outline(document: Any, page_count: int) -> list[OutlineEntry]:
    """Read the entries that lead to a page of the document, in the order of the outline."""
    entries: list[OutlineEntry] = []
    for bookmark, level in islice(_bookmarks(document), MOST_ENTRIES):
        title = " ".join(read_string(pdfium.FPDFBookmark_GetTitle, bookmark).split())
        destination = pdfium.FPDFBookmark_GetDest(document, bookmark)
        if not destination:
            action = pdfium.FPDFBookmark_GetAction(bookmark)
            destination = action and pdfium.FPDFAction_GetDest(document, action)
        if not destination or not any(map(str.isalpha, title)):
            continue
        page = pdfium.FPDFDest_GetDestPageIndex(document, destination)
        if 0 <= page < page_count:
            entries.append(OutlineEntry(title[:_LONGEST_TITLE], level, page, _top(destination)))
    return entries


def _bookmarks(document: Any) -> Iterator[tuple[Any, int]]:
    """Yield bookmarks with their levels, depth first; a circular reference is ignored."""
    seen: set[int] = set()
    ancestors: list[Any] = []
    bookmark = pdfium.FPDFBookmark_GetFirstChild(document, None)
    while bookmark or ancestors:
        if not bookmark:
            bookmark = pdfium.FPDFBookmark_GetNextSibling(document, ancestors.pop())
            continue
        address = _address(bookmark)
        if address in seen:
            bookmark = None
            continue
        seen.add(address)
        yield bookmark, len(ancestors) + 1
        child = (
            pdfium.FPDFBookmark_GetFirstChild(document, bookmark)
            if len(ancestors) + 1 < DEEPEST_LEVEL
            else None
        )
        if child:
            ancestors.append(bookmark)
            bookmark = child
        else:
            bookmark = pdfium.FPDFBookmark_GetNextSibling(document, bookmark)


def _address(pointer: Any) -> int:
    return ctypes.addressof(pointer.contents)


def _top(destination: Any) -> float | None:
    """Height that a destination leads to, in points."""
    has_x, has_y, has_zoom = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    x, y, zoom = ctypes.c_float(), ctypes.c_float(), ctypes.c_float()
    placed = pdfium.FPDFDest_GetLocationInPage(destination, has_x, has_y, has_zoom, x, y, zoom)
    return y.value if placed and has_y.value else None
