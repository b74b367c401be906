"""Judgement of an index: the faults that the stored chunks show beside the files.

Chunks and files are compared without white space, since splitters trim and join it, and without a
byte order mark, which belongs to the encoding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

__all__ = ["Faults", "judge"]

_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class Faults:
    """Numbers of faults.

    Attributes:
        lost: files without a chunk.
        incomplete: files of which a part is in no chunk.
        surplus: documents without a file.
        outdated: chunks with a text that their file does not have.
        doubled: chunks that are stored more often than their text is in the file.
    """

    lost: int = 0
    incomplete: int = 0
    surplus: int = 0
    outdated: int = 0
    doubled: int = 0

    def __str__(self) -> str:
        counts = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{count:,} {name}" for name, count in counts if count) or "none"


def judge(files: Mapping[str, str], chunks: Iterable[tuple[str, str]]) -> Faults:
    """Compare stored chunks, as uri and text, with the texts of the files by uri."""
    by_uri: dict[str, Counter[str]] = {}
    for uri, text in chunks:
        by_uri.setdefault(uri, Counter())[_squeezed(text)] += 1
    outdated = doubled = incomplete = 0
    for uri in by_uri.keys() & files.keys():
        file = _squeezed(files[uri])
        covered = bytearray(len(file))
        for text, count in by_uri[uri].items():
            places = _places(text, file)
            for start in places:
                covered[start : start + len(text)] = b"\1" * len(text)
            outdated += 0 if places else count
            doubled += max(0, count - max(1, len(places)))
        incomplete += not all(covered)
    return Faults(
        lost=len(files.keys() - by_uri.keys()),
        incomplete=incomplete,
        surplus=len(by_uri.keys() - files.keys()),
        outdated=outdated,
        doubled=doubled,
    )


def _squeezed(text: str) -> str:
    return "".join(text.removeprefix(_BYTE_ORDER_MARK).split())


def _places(text: str, file: str) -> list[int]:
    """Positions of a text in a file; they may overlap."""
    places = []
    start = file.find(text)
    while start >= 0:
        places.append(start)
        start = file.find(text, start + 1)
    return places
