"""Damaged variants of documents, and the check that an extractor withstands them."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Iterable, Iterator

from content.rendition import Extractor, Rendition
from runtime.errors import Poison

_MOST_FLIPS = 8


def variants(raw: bytes, *, seed: int, count: int) -> Iterator[bytes]:
    """Yield ``count`` truncations, and as many copies with a few other bytes."""
    rng = random.Random(seed)
    for _ in range(count):
        yield raw[: rng.randrange(len(raw))]
        yield _flipped(raw, rng)


def variants_of_members(raw: bytes, *, seed: int, count: int) -> Iterator[bytes]:
    """Yield zip archives whose checksums are right, with a member that is damaged or missing."""
    rng = random.Random(seed)
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    for _ in range(count):
        name = rng.choice(list(members))
        content = members[name]
        damages = (b"", content[: rng.randrange(len(content) + 1)], _flipped(content, rng))
        yield zipped({**members, name: rng.choice(damages)})
        yield zipped({other: members[other] for other in members if other != name})


def zipped(members: dict[str, bytes]) -> bytes:
    """Return a zip archive of the members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def renditions_of(extract: Extractor, documents: Iterable[bytes]) -> tuple[int, int]:
    """Extract each document; return how many gave a sound rendition, and how many a refusal.

    Raises:
        Exception: any error of the extractor that is not a refusal.
    """
    extracted = refused = 0
    for number, raw in enumerate(documents):
        outcome = _outcome(extract, raw, number)
        if isinstance(outcome, Rendition):
            assert_sound(outcome)
            extracted += 1
        else:
            assert outcome.message
            assert outcome.remedy
            refused += 1
    return extracted, refused


def _outcome(extract: Extractor, raw: bytes, number: int) -> Rendition | Poison:
    try:
        return extract(raw)
    except Poison as refusal:
        return refusal
    except Exception as error:
        error.add_note(f"document {number} of the seed")
        raise


def assert_sound(rendition: Rendition) -> None:
    """Check the contract of renditions, as far as it can be read from one."""
    assert len(rendition.lines) == len(rendition.place_of)
    assert all(0 <= index < len(rendition.places) for index in rendition.place_of)
    assert len(set(rendition.places)) == len(rendition.places)
    text = "".join(rendition.lines)
    assert not {"\r", "\n", "\0"}.intersection(text)
    text.encode()  # a lone surrogate raises
    rows = [section.row for section in rendition.sections]
    assert rows == sorted(rows)
    assert all(0 <= row < len(rendition.lines) for row in rows)
    assert all(rendition.lines[row].strip() for row in rows), "a section begins with a blank line"
    assert all(section.name and section.level > 0 for section in rendition.sections)
    assert all(0 < len(warning) <= 300 for warning in rendition.warnings)


def _flipped(raw: bytes, rng: random.Random) -> bytes:
    content = bytearray(raw)
    for _ in range(rng.randint(1, _MOST_FLIPS) if content else 0):
        content[rng.randrange(len(content))] = rng.randrange(rng.choice((128, 256)))
    return bytes(content)
