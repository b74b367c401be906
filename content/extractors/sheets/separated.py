"""Rows of files of separated values (CSV, TSV), with the lines that each row takes up."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from content.extractors.sheets.cells import Row
from content.extractors.texts import decode, single_line
from runtime.errors import Damaged, LimitExceeded

__all__ = ["CELL_CHARACTERS", "read_separated"]

CELL_CHARACTERS = 100_000
_DELIMITERS = ",;\t|"
_SAMPLE_CHARACTERS = 64 << 10
_SAMPLE_ROWS = 100


def read_separated(raw: bytes) -> Iterator[Row]:
    """Yield the rows of a file whose fields are apart by ``,``, ``;``, a tab or ``|``.

    Raises:
        Damaged: the bytes are not text in a Unicode encoding.
        LimitExceeded: a field is longer than the ``csv`` module accepts.
    """
    text = decode(raw)
    if "\0" in text:
        raise Damaged("the bytes are neither a workbook nor text", "publish them as what they are")
    # line ends only: splitlines() would also cut at form feeds inside fields
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=_delimiter(text))
    first = 1
    try:
        for number, cells in enumerate(reader, 1):
            fields = [single_line(cell, CELL_CHARACTERS) for cell in cells]
            yield Row(number, fields, (first, min(reader.line_num, len(lines))))
            first = reader.line_num + 1
    except csv.Error as error:
        raise LimitExceeded(
            f"a field is longer than {csv.field_size_limit():,} characters",
            "check its quotation marks, or publish the file as text",
        ) from error


def _delimiter(text: str) -> str:
    """Return the character that divides most rows into one same number of fields.

    The sniffer of the standard library takes an apostrophe for a quotation mark, and then a letter
    for a delimiter.
    """
    sample = text[:_SAMPLE_CHARACTERS].splitlines(keepends=True)
    if len(text) > _SAMPLE_CHARACTERS and len(sample) > 1:
        del sample[-1]
    return max(_DELIMITERS, key=lambda delimiter: _evenness(sample, delimiter))


def _evenness(sample: list[str], delimiter: str) -> tuple[float, int]:
    """Return the share of rows with the most common number of fields, and that number."""
    try:
        rows = list(islice(csv.reader(sample, delimiter=delimiter), _SAMPLE_ROWS))
    except csv.Error:
        return 0.0, 0
    counts = Counter(len(row) for row in rows if row)
    fields = max(counts, key=lambda count: (count > 1, counts[count]), default=1)
    return (counts[fields] / counts.total(), fields) if fields > 1 else (0.0, 0)
