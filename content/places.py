"""Locator of a chunk: the union of the places of its lines, and the lines around its text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from content.rendition import Box, Place

__all__ = ["locator_of", "rendered", "united"]

_NUMBERED = re.compile(r"(?P<name>cell|slide|turns)=(?P<first>\d+)(?:-(?P<last>\d+))?")
_CELLS = re.compile(
    r"(?P<sheet>.+!)?(?P<left>[A-Z]+)(?P<top>\d+)(?::(?P<right>[A-Z]+)(?P<bottom>\d+))?"
)


def locator_of(places: Sequence[Place]) -> Mapping[str, Any] | None:
    """Return the place of a chunk by the places of its lines, in plain values for JSON.

    ``pages`` are rows of page, left, bottom, right and top, one for each page that has a box.
    ``page`` is the first page; ``lines`` is the first and last line of the original; ``times`` is
    the first and last time in ISO 8601; ``permalink`` is the first address of its own. Keys without
    a value are absent. Returns None if all are.
    """
    locator: dict[str, Any] = {}
    if pages := _united_boxes(places):
        locator["pages"] = [[page, *box] for page, box in sorted(pages.items())]
    if numbers := [place.page for place in places if place.page is not None]:
        locator["page"] = min(numbers)
    if fragment := _united_fragment([place.fragment for place in places if place.fragment]):
        locator["fragment"] = fragment
    if speakers := dict.fromkeys(name for place in places for name in place.speakers):
        locator["speakers"] = list(speakers)
    if times := [place.time for place in places if place.time is not None]:
        locator["times"] = [min(times).isoformat(), max(times).isoformat()]
    if lines := [place.lines for place in places if place.lines is not None]:
        locator["lines"] = [min(first for first, _ in lines), max(last for _, last in lines)]
    if permalink := next((place.permalink for place in places if place.permalink), None):
        locator["permalink"] = permalink
    return locator or None


def united(locators: Sequence[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
    """Return the locator of neighbouring chunks, joined in their order, from those of each.

    The line that opens a fence or a table is that of the first, the one that ends it that of the
    last. Returns None if no chunk has a locator.
    """
    present = [locator for locator in locators if locator]
    if not present:
        return None
    joined: dict[str, Any] = {}
    if pages := _boxes_of_rows([row for locator in present for row in locator.get("pages", ())]):
        joined["pages"] = pages
    if numbers := [locator["page"] for locator in present if "page" in locator]:
        joined["page"] = min(numbers)
    if fragment := _united_fragment([part["fragment"] for part in present if part.get("fragment")]):
        joined["fragment"] = fragment
    if speakers := dict.fromkeys(name for part in present for name in part.get("speakers", ())):
        joined["speakers"] = list(speakers)
    if times := [time for part in present for time in part.get("times", ())]:
        joined["times"] = [min(times), max(times)]
    if lines := [line for part in present for line in part.get("lines", ())]:
        joined["lines"] = [min(lines), max(lines)]
    if permalink := next((part["permalink"] for part in present if "permalink" in part), None):
        joined["permalink"] = permalink
    first, last = locators[0] or {}, locators[-1] or {}
    around = {"opening": first.get("opening"), "closing": last.get("closing")}
    return joined | {name: line for name, line in around.items() if line} or None


def rendered(content: str, locator: Mapping[str, Any] | None) -> str:
    """Return a chunk's text as a reader can parse it.

    The locator of a part of a fence has the fence's first line as ``opening``, if the part does
    not begin with it, and the mark that ends the fence as ``closing``, if the part does not end
    with it. For a part of a table, ``opening`` is the head of the table.
    """
    lines = locator or {}
    return "\n".join(filter(None, (lines.get("opening"), content, lines.get("closing"))))


def _united_boxes(places: Iterable[Place]) -> dict[int, Box]:
    """Smallest box around the boxes of each page."""
    united: dict[int, Box] = {}
    for place in places:
        if place.page is None or place.box is None:
            continue
        box, other = place.box, united.get(place.page, place.box)
        united[place.page] = Box(
            round(min(box.left, other.left), 1),
            round(min(box.bottom, other.bottom), 1),
            round(max(box.right, other.right), 1),
            round(max(box.top, other.top), 1),
        )
    return united


def _boxes_of_rows(rows: Iterable[Sequence[float]]) -> list[list[float]]:
    """Join the rows of page, left, bottom, right and top of each page."""
    places = [Place(page=int(page), box=Box(*box)) for page, *box in rows]
    return [[page, *box] for page, box in sorted(_united_boxes(places).items())]


def _united_fragment(fragments: Sequence[str]) -> str:
    """Join ranges of numbers, or of cells; other fragments give the first."""
    if len(set(fragments)) < 2:
        return fragments[0] if fragments else ""
    numbered = [_NUMBERED.fullmatch(fragment) for fragment in fragments]
    if all(numbered):
        return _united_numbers([match for match in numbered if match is not None])
    cells = [_CELLS.fullmatch(fragment) for fragment in fragments]
    if all(cells):
        return _united_cells([match for match in cells if match is not None])
    return fragments[0]


def _united_numbers(matches: Sequence[re.Match[str]]) -> str:
    first = min(int(match["first"]) for match in matches)
    last = max(int(match["last"] or match["first"]) for match in matches)
    return f"{matches[0]['name']}={first}" + (f"-{last}" if last > first else "")


def _united_cells(matches: Sequence[re.Match[str]]) -> str:
    """Range around the cells of the first sheet; a chunk over several sheets cites its first."""
    sheet = matches[0]["sheet"]
    ranges = [match for match in matches if match["sheet"] == sheet]
    left = min((match["left"] for match in ranges), key=_column)
    right = max((match["right"] or match["left"] for match in ranges), key=_column)
    top = min(int(match["top"]) for match in ranges)
    bottom = max(int(match["bottom"] or match["top"]) for match in ranges)
    return f"{sheet or ''}{left}{top}:{right}{bottom}"


def _column(letters: str) -> tuple[int, str]:
    return len(letters), letters
