"""Values of a JSON text that may hold anything: its elements, and reading with a type."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from runtime.errors import Damaged

__all__ = ["Element", "address", "elements", "instant", "items", "members", "string"]

_WEB = re.compile(r"https?://[^\s\x00-\x1f\x7f\ud800-\udfff\"<>]{1,2000}")
_BLANKS = " \t\n\r"
_MILLISECONDS_FROM = 10**11
"""Epoch times from here on count milliseconds: in seconds they would be after the year 5000."""
_COMPLETE = "export it again, and publish the complete file"


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a list, or a value on a line of its own, with its lines, from 1."""

    value: object
    lines: tuple[int, int]


def elements(text: str) -> Sequence[Element]:
    """Parse an array into its elements, or values one after another (JSON Lines).

    Raises:
        Damaged: the text is not JSON, or is nested too deeply.
    """
    try:
        return list(_elements(text))
    except (ValueError, RecursionError) as error:
        raise Damaged("the bytes are not readable JSON", _COMPLETE) from error


def _elements(text: str) -> Iterator[Element]:
    decoder = json.JSONDecoder()
    position = _after_blanks(text, 0)
    is_array = text.startswith("[", position)
    if is_array:
        position = _after_blanks(text, position + 1)
    line, counted = 1, 0
    while position < len(text):
        if is_array and text[position] == "]":
            break
        value, end = decoder.raw_decode(text, position)
        line += text.count("\n", counted, position)
        last_line = line + text.count("\n", position, end)
        yield Element(value, (line, last_line))
        line, counted = last_line, end
        position = _after_blanks(text, end)
        if is_array:
            position = _after_separator(text, position)
    if is_array and (position >= len(text) or _after_blanks(text, position + 1) < len(text)):
        raise ValueError("the array has no end, or is not the only value")


def _after_separator(text: str, position: int) -> int:
    """Position of the next element or of the array's end."""
    if text.startswith("]", position):
        return position
    following = _after_blanks(text, position + 1)
    if not text.startswith(",", position) or text.startswith("]", following):
        raise ValueError("elements are not separated by a comma each")
    return following


def _after_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in _BLANKS:
        position += 1
    return position


def members(value: object) -> Mapping[str, object]:
    """Return the members of an object, none of any other value."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> Sequence[object]:
    """Return the elements of an array, none of any other value."""
    return value if isinstance(value, list) else ()


def string(*values: object) -> str:
    """Return the first value that is a text other than blanks, or ''."""
    return next((text for text in values if isinstance(text, str) and text.strip()), "")


def address(*values: object) -> str | None:
    """Return the first value that is an address of the web, or None."""
    return next((text for text in values if isinstance(text, str) and _WEB.fullmatch(text)), None)


def instant(value: object) -> datetime | None:
    """Moment in UTC of an ISO 8601 text or of seconds since 1970. Returns None for others."""
    try:
        if isinstance(value, str) and not _is_number(value):
            moment = datetime.fromisoformat(value.strip())
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            seconds = float(value)
            if seconds <= 0 or not math.isfinite(seconds):
                return None
            return datetime.fromtimestamp(
                seconds / 1_000 if seconds >= _MILLISECONDS_FROM else seconds, UTC
            )
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _is_number(text: str) -> bool:
    return text.strip().replace(".", "", 1).isdecimal()
