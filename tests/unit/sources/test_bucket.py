from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from runtime.errors import Unavailable, UsageError
from sources import Reason, Skip, open_source
from sources.bucket import BucketSource, open_bucket
from sources.types import Read, SizeLimits
from tests.support.syncs import LIMIT_BYTES, Synced, sync

URL = "memory://bucket/docs"


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """File system in memory, empty before and after."""
    monkeypatch.setattr("sources.bucket._SETTLED_SECONDS", -1.0)
    storage = fsspec.filesystem("memory")
    storage.store.clear()
    yield storage
    storage.store.clear()


def put(storage: Any, **texts: str | bytes) -> None:
    for name, text in texts.items():
        storage.pipe(f"/bucket/docs/{name}", text.encode() if isinstance(text, str) else text)


def brief(before: Synced, **options: Any) -> tuple[list[tuple[str, str, str]], Synced]:
    changes, after = sync(open_bucket(URL, **options), before)
    return [(change.change, change.uri, change.reason) for change in changes], after


class Reads:
    """Paths that a storage was asked to read."""

    def __init__(self, storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        read = type(storage).cat_file

        def counted(fs: Any, path: str, *args: Any, **options: Any) -> Any:
            self.paths.append(path)
            return read(fs, path, *args, **options)

        monkeypatch.setattr(type(storage), "cat_file", counted)


def test_a_second_sync_reads_nothing(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read to be compared; an edit, a new and a deleted file are published."""
    put(storage, **{"a.md": "1", "b/c.md": "2", "gone.md": "3"})
    put(storage, **{"marker/": b"", "x.png": b"\0\1"})
    changes, before = brief(Synced())
    assert [uri for _, uri, _ in changes] == ["a.md", "b/c.md", "gone.md"]
    reads = Reads(storage, monkeypatch)
    changes, before = brief(before)
    assert (changes, reads.paths) == ([], [])
    put(storage, **{"a.md": "one", "new.md": "4"})
    storage.rm("/bucket/docs/gone.md")
    changes, _ = brief(before)
    assert changes == [
        ("upsert", "a.md", Reason.CHANGED),
        ("upsert", "new.md", Reason.NEW),
        ("delete", "gone.md", Reason.DELETED),
    ]
    assert set(reads.paths) == {"/bucket/docs/a.md", "/bucket/docs/new.md"}


def test_a_moved_file_is_a_rename(storage: Any) -> None:
    """An equal text under another name is a rename."""
    put(storage, **{"a.md": "1"})
    _, before = brief(Synced())
    storage.mv("/bucket/docs/a.md", "/bucket/docs/b.md")
    assert brief(before)[0] == [("rename", "b.md", Reason.RENAMED)]


def test_a_digest_of_the_storage_decides(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with the same ETag was not changed, whatever its time; a copy of it is not read."""
    info = {"size": 1, "type": "file", "ETag": '"e1"', "LastModified": 1.0}
    listed = {"/bucket/docs/a.md": info}
    monkeypatch.setattr(type(storage), "find", lambda *_, **__: listed)
    put(storage, **{"a.md": "1", "b.md": "1"})
    _, before = brief(Synced())
    reads = Reads(storage, monkeypatch)
    listed = {"/bucket/docs/a.md": info | {"LastModified": 2.0}}
    assert brief(before)[0] == []
    assert reads.paths == []
    listed = {"/bucket/docs/b.md": info}
    assert brief(before)[0] == [("rename", "b.md", Reason.RENAMED)]
    assert reads.paths == ["/bucket/docs/b.md"]


def test_a_file_of_this_moment_is_read_again(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage without digests may have changed a file within a tick of its clock."""
    monkeypatch.setattr("sources.bucket._SETTLED_SECONDS", 60.0)
    put(storage, **{"a.md": "1"})
    _, before = brief(Synced())
    reads = Reads(storage, monkeypatch)
    assert brief(before)[0] == []
    assert reads.paths == ["/bucket/docs/a.md"]


def test_rules_and_options_leave_files_out(storage: Any) -> None:
    """Rules at the prefix, patterns of options and the defaults apply as in a directory."""
    put(
        storage,
        **{
            ".headraceignore": "drafts/\n/.headraceignore\n",
            "a.md": "1",
            "drafts/b.md": "2",
            "old/c.md": "3",
            ".env": "PASSWORD=1",
            "empty.md": "",
            "node_modules/x/index.js": "4",
            "large.md": "5" * (LIMIT_BYTES + 1),
        },
    )
    changes, after = brief(Synced(), exclude=["old/"])
    assert [uri for _, uri, _ in changes] == ["a.md"]
    assert after.report.skipped == Counter(
        {
            Skip.IGNORED: 3,
            Skip.SECRET: 1,
            Skip.EMPTY: 1,
            Skip.DEPENDENCY: 1,
            Skip.OVERSIZED: 1,
        }
    )
    assert [uri for _, uri, _ in brief(Synced(), include=["drafts/"])[0]][:1] == ["a.md"]


def test_an_empty_prefix_is_an_error(storage: Any) -> None:
    """A wrong URL must not delete the documents of a source."""
    with pytest.raises(UsageError, match="no files"):
        brief(Synced())
    assert storage.store == {}


def test_a_storage_that_fails_deletes_nothing(
    storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed listing or read ends the sync; a file that was deleted just now is skipped."""
    put(storage, **{"a.md": "1"})
    source = open_bucket(URL)

    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError("denied: https://ana:pa55word@host/")

    listing = source.list(SizeLimits(9, 9))
    with source.reader(SizeLimits(9, 9)) as read, monkeypatch.context() as patched:
        patched.setattr(type(storage), "cat_file", fail)
        with pytest.raises(Unavailable) as caught:
            read("a.md", "")
        assert "pa55word" not in str(caught.value)
        patched.setattr(type(storage), "find", fail)
        with pytest.raises(Unavailable, match="can't be listed"):
            source.list(SizeLimits(9, 9))
    storage.rm("/bucket/docs/a.md")
    with source.reader(SizeLimits(9, 9)) as read:
        _assert_gone(read)
    assert list(listing.files) == ["a.md"]


def _assert_gone(read: Read) -> None:
    with pytest.raises(FileNotFoundError):
        read("a.md", "")


def test_names_hold_no_credentials() -> None:
    """Name, key and location have neither userinfo nor options."""
    source = BucketSource(None, "", "x", (), ())
    assert (source.kind, source.key) == ("bucket", "bucket:x")
    opened = open_bucket("memory://ana:pa55word@bucket/docs/?token=t0ken")
    assert opened.name == opened.location == "memory://bucket/docs"
    for url in ("ftp://ana:pa55word@127.0.0.1:1/docs", "nothing://a:pa55word@b"):
        with pytest.raises((UsageError, Unavailable)) as caught:
            open_bucket(url)
        assert "pa55word" not in str(caught.value)


def test_urls_are_opened_as_buckets(tmp_path: Path) -> None:
    """A URL of any file system is a bucket, which has no work tree; paths take no --exclude."""
    assert open_source(f"file://{tmp_path}").kind == "bucket"
    with pytest.raises(UsageError, match="not a repository"):
        open_source(URL, worktree=True)
    with pytest.raises(UsageError, match="--exclude"):
        open_source(tmp_path, exclude=["a"])
    with pytest.raises(UsageError, match="several URLs"):
        open_source("simplecache::memory://a:pa55word@b")
