"""Format of a shared file: parts, and the block that lists them."""

from __future__ import annotations

import hashlib

import pytest

from store.archive.blocks import BadBlock, Compressor
from store.archive.shared_files import Part, SharedFile, parts_of


def _block(raw: bytes) -> bytes:
    return Compressor().block(raw, hashlib.sha256(raw).digest())


def test_parts_are_listed_in_order() -> None:
    """The last block of a file lists its parts, with the offsets that their paths have."""
    file = SharedFile.new("folder/shared")
    first, second = _block(b"one\n"), _block(b"two\n") + _block(b"three\n")
    paths = [
        file.add(Part(project="alpha", project_id=1, kind="contents", start=9, end=9), first),
        file.add(Part(project="beta", project_id=2, kind="events", start=9, end=9), second),
    ]
    parts = parts_of(file.data)
    assert [(part.project, part.project_id, part.kind) for part in parts] == [
        ("alpha", 1, "contents"),
        ("beta", 2, "events"),
    ]
    assert paths == [f"{file.path}#{part.start}-{part.end}" for part in parts]
    assert [file.data[part.start : part.end] for part in parts] == [first, second]
    assert file.path.startswith("folder/shared/")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda _: b"", "empty"),
        (lambda data: data[:-1], "no valid block|decompressed"),
        (lambda data: b"x" + data, "no valid block"),
        (lambda _: _block(b"{}"), "does not list"),
    ],
)
def test_a_damaged_file_is_refused(damage: object, reason: str) -> None:
    """A file that is cut, or whose last block lists no parts, is not intact."""
    file = SharedFile.new("folder")
    part = Part(project="alpha", project_id=1, kind="events", start=0, end=0)
    file.add(part, _block(b"one\n"))
    assert callable(damage)
    with pytest.raises(BadBlock, match=reason):
        parts_of(damage(file.data))
