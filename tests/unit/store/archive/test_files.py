"""Files of the archive: written whole or not at all, and readable by the owner only."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from runtime.errors import ConfigurationError, Unavailable
from store.archive.files import Files, file_of, is_part, part_path


@pytest.fixture(params=["local", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    urls = {"local": str(tmp_path / "archive"), "memory": f"memory://unit{tmp_path}"}
    return Files(urls[request.param])


def test_what_is_written_is_read(files: Files) -> None:
    """A file is read whole or in ranges, and listed with its size."""
    files.write("1/events/a.zst", b"0123456789")
    files.write("1/events/b.zst", b"")
    assert files.read("1/events/a.zst") == b"0123456789"
    assert files.read_ranges("1/events/a.zst", [(0, 2), (8, 12), (5, 5)]) == [b"01", b"89", b""]
    found = files.listed("1")
    assert [(file.path, file.size_bytes) for file in found] == [
        ("1/events/a.zst", 10),
        ("1/events/b.zst", 0),
    ]
    assert files.listed("2") == []


def test_a_part_is_read_like_a_file(files: Files) -> None:
    """A part of a file is read whole or in ranges, which begin at the part."""
    files.write("1/events/a.zst", b"0123456789")
    part = part_path("1/events/a.zst", 2, 6)
    assert files.read(part) == b"2345"
    assert files.read_ranges(part, [(0, 2), (3, 4)]) == [b"23", b"5"]
    assert (file_of(part), is_part(part)) == ("1/events/a.zst", True)
    assert (file_of("1/events/a.zst"), is_part("1/events/a.zst")) == ("1/events/a.zst", False)
    assert files.full(part).endswith("1/events/a.zst#2-6")
    files.remove("1/events/a.zst")
    with pytest.raises(FileNotFoundError):
        files.read(part)


def test_a_removed_file_is_gone(files: Files) -> None:
    """A removed file can't be read, and can be removed again."""
    files.write("1/a", b"x")
    files.remove("1/a")
    files.remove("1/a")
    with pytest.raises(FileNotFoundError):
        files.read("1/a")
    with pytest.raises(FileNotFoundError):
        files.read_ranges("1/a", [(0, 1)])


def test_no_other_user_can_read(tmp_path: Path) -> None:
    """Only the owner can read files and folders, whatever the umask."""
    before = os.umask(0)
    try:
        Files(str(tmp_path / "new" / "archive")).write("1/events/a", b"x")
    finally:
        os.umask(before)
    made = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 4 + [0o600]


@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.replace"])
def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A failed write leaves no file, and names the path in its error."""
    files = Files(str(tmp_path))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    files.write("1/a", b"x")
    with monkeypatch.context() as patch:
        patch.setattr(call, fail)
        with pytest.raises(Unavailable, match=f"{tmp_path}/1/b can't be written .no space is left"):
            files.write("1/b", b"x")
    assert [file.path for file in files.listed("1")] == ["1/a"]
    files.write("1/b", b"x")
    assert files.read("1/b") == b"x"


def test_an_unknown_kind_of_storage_is_refused() -> None:
    """An unknown kind of storage raises ConfigurationError."""
    with pytest.raises(ConfigurationError, match="HEADRACE_ARCHIVE_URL=nowhere://x"):
        Files("nowhere://x")
