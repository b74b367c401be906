"""Properties of every rendition, and damaged copies of documents."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from content.rendition import Extractor, Rendition
from runtime.errors import Poison

__all__ = ["DATA", "assert_well_formed", "assert_withstands_damage", "fragments"]

DATA = Path(__file__).parents[1] / "data/content"
_UNWANTED = re.compile(r"[\r\n\0\ud800-\udfff]")


def assert_well_formed(rendition: Rendition) -> None:
    """Check the promises of ``content/rendition.py``."""
    assert len(rendition.lines) == len(rendition.place_of)
    assert all(0 <= place < len(rendition.places) for place in rendition.place_of)
    assert len(set(rendition.places)) == len(rendition.places)
    assert not any(map(_UNWANTED.search, rendition.lines))
    rows = [section.row for section in rendition.sections]
    assert rows == sorted(rows)
    assert all(0 <= row < len(rendition.lines) for row in rows)
    assert all(rendition.lines[row].strip() for row in rows)
    assert all(section.level >= 1 and section.name for section in rendition.sections)
    assert all(len(warning) <= 300 for warning in rendition.warnings)


def fragments(rendition: Rendition) -> dict[str, str]:
    """Fragment of each line that is not blank, by the line."""
    return {
        line: rendition.places[place].fragment
        for line, place in zip(rendition.lines, rendition.place_of, strict=True)
        if line.strip()
    }


def assert_withstands_damage(
    extract: Extractor, documents: Sequence[bytes], copies: int, seed: int = 13
) -> None:
    """Check that damaged copies give a rendition or a refusal, and the same one twice."""
    numbers = random.Random(seed)
    extracted = 0
    for document in documents:
        for damaged in _damaged(document, copies, numbers):
            first = _outcome(extract, damaged)
            assert first == _outcome(extract, damaged)
            if isinstance(first, Rendition):
                extracted += 1
                assert_well_formed(first)
            else:
                assert all(first), "a refusal has a message and a remedy"
    assert extracted, f"no damaged copy was extracted (seed {seed})"


def _outcome(extract: Extractor, raw: bytes) -> Rendition | tuple[str, str, str]:
    try:
        return extract(raw)
    except Poison as refusal:
        return (refusal.code, refusal.message, refusal.remedy)


def _damaged(document: bytes, copies: int, numbers: random.Random) -> Iterator[bytes]:
    yield document
    for number in range(copies):
        if number % 2:
            yield document[: numbers.randrange(len(document))]
        else:
            changed = bytearray(document)
            for _ in range(numbers.randint(1, 8)):
                changed[numbers.randrange(len(changed))] = numbers.randrange(256)
            yield bytes(changed)
