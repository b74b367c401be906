"""Text: decoding of files, clean lines, and rows of Markdown tables."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

from runtime.errors import Damaged

__all__ = ["clean", "decode", "single_line", "table_row", "table_rule"]

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins like the mark of UTF-16, so it comes first
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b\x1f\x7f]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_COLLAPSED = 4
"""Characters that are read for each character of a single line, so that blanks do not hide it."""


def decode(raw: bytes) -> str:
    """Decode by the byte order mark; without one, as UTF-8.

    Raises:
        Damaged: the bytes are in another encoding. They are never read as Latin-1, in which all
            bytes are valid and most are wrong.
    """
    encoding = next((name for mark, name in _MARKS if raw.startswith(mark)), "utf-8")
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise Damaged(
            f"byte {error.start:,} is not valid {encoding.upper()}", "save the file as UTF-8"
        ) from error


def clean(text: str) -> str:
    """Remove control characters, and replace lone surrogates, which UTF-8 can't encode."""
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", _CONTROLS.sub("", text))


def single_line(text: str, most: int) -> str:
    """Return ``text`` on one line of at most ``most`` characters, each run of blanks as one."""
    line = " ".join(clean(text[: _COLLAPSED * most]).split())
    if len(line) <= most and len(text) <= _COLLAPSED * most:
        return line
    return line[: most - 1].rstrip() + "…"


def table_row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table; a bar within a cell is escaped."""
    texts = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"


def table_rule(columns: int) -> str:
    """Return the line that stands between the header of a Markdown table and its rows."""
    return f"|{' --- |' * columns}"
