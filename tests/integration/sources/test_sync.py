from __future__ import annotations

import os
import stat
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from events.models import Origin
from runtime.errors import UsageError
from sources import Change, IndexedDocument, Reason, Skip, document_changed, open_source
from sources.directory import DirectorySource, open_directory
from sources.files import read_marked
from sources.git import GitSource
from sources.types import Content, SizeLimits
from tests.support.repositories import Repository, create_repository, write_files
from tests.support.syncs import LIMIT_BYTES, LIMITS, Synced, applied, begin, sync

BODY = "".join(f"line {number} of a text that is long enough\n" for number in range(30))


def brief(changes: list[Change]) -> list[tuple[str, ...]]:
    return [
        (one.change, one.uri) if one.old_uri is None else (one.change, one.old_uri, one.uri)
        for one in changes
    ]


def test_a_first_sync_publishes_the_files_at_head(tmp_path: Path) -> None:
    """A first sync publishes content, commit and permanent link of HEAD, not of the work tree."""
    repository = create_repository(tmp_path, {"src/a.py": "a = 1\n", "b.md": "# B\n"})
    repository.git("remote", "add", "origin", "git@github.com:owner/name.git")
    repository.write({"b.md": "edited", "untracked.txt": "new"})
    changes, run = sync(tmp_path)
    assert brief(changes) == [("upsert", "b.md"), ("upsert", "src/a.py")]
    assert changes[0].content == "# B\n"
    assert changes[0].commit == repository.git("rev-parse", "HEAD")
    assert changes[0].permalink_template == (
        "https://github.com/owner/name/blob/{commit}/{path}#L{start}-L{end}"
    )
    assert run.total == 2
    document_changed(changes[0], "project")


def test_a_second_sync_publishes_nothing(tmp_path: Path) -> None:
    """A second sync publishes nothing, also after a commit without changes."""
    repository = create_repository(tmp_path, {"a.py": "a = 1\n", "image": b"\0\1", "empty": ""})
    _, first = sync(tmp_path)
    repository.commit()
    changes, second = sync(tmp_path, first)
    assert changes == []
    assert (second.report.found, second.report.unchanged) == (3, 1)
    assert second.report.skipped == Counter({Skip.BINARY: 1, Skip.EMPTY: 1})


def test_a_repository_names_what_is_not_worth_asking(tmp_path: Path) -> None:
    """A committed ``.headraceignore`` leaves tracked files out and deletes them from the index."""
    repository = create_repository(tmp_path, {"a.py": "a = 1\n", "made/by.lock": "x\n"})
    _, first = sync(tmp_path)
    repository.commit({".headraceignore": "*.lock\n/.headraceignore\n"})
    changes, second = sync(tmp_path, first)
    assert brief(changes) == [("delete", "made/by.lock")]
    assert second.report.skipped == Counter({Skip.IGNORED: 2})


def test_edits_deletes_and_renames_are_published_as_such(tmp_path: Path) -> None:
    """A renamed directory gives renames, also of an edited file."""
    files: dict[str, str | bytes] = {
        f"old/{name}.txt": f"{name}\n{BODY}" for name in ("one", "two", "three")
    }
    repository = create_repository(tmp_path, files | {"edited": "1", "gone": "2", "mode": "3"})
    _, first = sync(tmp_path)
    repository.git("mv", "old", "new")
    repository.write({"new/two.txt": f"two!\n{BODY}", "edited": "changed"})
    (tmp_path / "gone").unlink()
    (tmp_path / "mode").chmod(0o755)
    repository.commit()
    changes, second = sync(tmp_path, first)
    assert brief(changes) == [
        ("rename", "old/one.txt", "new/one.txt"),
        ("rename", "old/three.txt", "new/three.txt"),
        ("rename", "old/two.txt", "new/two.txt"),
        ("upsert", "edited"),
        ("delete", "gone"),
    ]
    assert changes[2].content == f"two!\n{BODY}"
    assert sync(tmp_path, second)[0] == []


def test_a_force_push_falls_back_to_comparing_blobs(tmp_path: Path) -> None:
    """Renames are found by equal blobs if the last commit no longer exists."""
    repository = create_repository(tmp_path, {"kept": "1", "moved": "2", "edited": "3"})
    _, first = sync(tmp_path)
    repository.git("checkout", "--quiet", "--orphan", "other")
    repository.git("mv", "moved", "elsewhere")
    repository.commit({"edited": "4"})
    repository.git("branch", "-D", "main")
    repository.git("reflog", "expire", "--expire=now", "--all")
    repository.git("gc", "--quiet", "--prune=now")
    assert str(first.state.commit) not in repository.git("rev-list", "--all")
    changes, _ = sync(tmp_path, first)
    assert brief(changes) == [("rename", "moved", "elsewhere"), ("upsert", "edited")]


def test_links_and_submodules_are_counted_not_followed(tmp_path: Path) -> None:
    """Links and submodules are counted and not read."""
    (tmp_path / "secret").write_text("outside")
    other = create_repository(tmp_path / "other", {"inside": "of the submodule"})
    repository = create_repository(tmp_path / "main", {"a": "1"})
    (repository.path / "link").symlink_to("../secret")
    (repository.path / "directory").symlink_to("..")
    repository.git(
        "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.path), "sub"
    )
    repository.commit()
    changes, run = sync(repository.path)
    assert brief(changes) == [("upsert", ".gitmodules"), ("upsert", "a")]
    assert run.report.skipped == Counter({Skip.SYMLINK: 2, Skip.SUBMODULE: 1})


def test_nothing_of_the_repository_is_run(tmp_path: Path) -> None:
    """A sync runs no hook, filter, text converter, diff driver or monitor."""
    trap = tmp_path / "trap"
    repository = create_repository(tmp_path / "main", {"a.txt": BODY, ".gitattributes": ""})
    _, first = sync(repository.path)
    repository.git("mv", "a.txt", "b.txt")
    repository.commit({"b.txt": BODY + "more\n", ".gitattributes": "*.txt filter=f diff=d merge=f"})
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {trap}\ncat\n")
    script.chmod(0o755)
    for key in (
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "core.askPass",
        "diff.external",
        "diff.d.command",
        "diff.d.textconv",
        "filter.f.clean",
        "filter.f.smudge",
        "filter.f.process",
        "uploadpack.packObjectsHook",
        "credential.helper",
    ):
        repository.git("config", key, str(script))
    hooks = repository.path / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in (
        "post-checkout",
        "post-index-change",
        "fsmonitor-watchman",
        "reference-transaction",
    ):
        (hooks / hook).write_text(script.read_text())
        (hooks / hook).chmod(0o755)
    changes, _ = sync(repository.path, first)
    assert brief(changes) == [("rename", "a.txt", "b.txt"), ("upsert", ".gitattributes")]
    assert changes[0].content == BODY + "more\n"
    assert not trap.exists()
    repository.git("status")
    assert trap.exists(), "the trap itself doesn't work"


def test_a_missing_blob_is_never_fetched(tmp_path: Path) -> None:
    """A missing blob of a partial clone is counted as unreadable, and not fetched."""
    trap = tmp_path / "trap"
    repository = create_repository(tmp_path / "main", {"a": "here", "b": "gone"})
    blob = repository.git("rev-parse", "HEAD:b")
    (repository.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {trap}\n")
    script.chmod(0o755)
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "remote.origin.url": f"ext::{script}",
        "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none",
        "extensions.partialClone": "origin",
        "protocol.ext.allow": "always",
    }.items():
        repository.git("config", key, value)
    changes, run = sync(repository.path)
    assert brief(changes) == [("upsert", "a")]
    assert run.report.skipped == Counter({Skip.UNREADABLE: 1})
    assert not trap.exists()
    with pytest.raises(subprocess.CalledProcessError):
        repository.git("cat-file", "-p", blob)
    assert trap.exists(), "the trap itself doesn't work"


WEIRD = ["a b", "quo'te\"d", "new\nline", "tab\t", "ünïcode", "-dash", "*.glob", "back\\slash"]


@pytest.mark.parametrize("git", [True, False])
def test_odd_names_are_kept_as_they_are(tmp_path: Path, git: bool) -> None:
    """A file whose name is not UTF-8 is skipped; every other name is a uri."""
    write_files(tmp_path, {name: f"content of {name}" for name in WEIRD})
    with open(os.fsencode(tmp_path) + b"/\xff\xfe", "wb") as file:  # noqa: PTH123 - bytes path
        file.write(b"nameless")
    if git:
        create_repository(tmp_path).commit()
    changes, run = sync(tmp_path)
    assert {one.uri: one.content for one in changes} == {
        name: f"content of {name}" for name in WEIRD
    }
    assert run.report.skipped == Counter({Skip.NAME: 1})


@pytest.mark.parametrize("git", [True, False])
def test_every_reason_to_skip_is_counted(tmp_path: Path, git: bool) -> None:
    """Every file is published or counted as skipped with a reason."""
    write_files(
        tmp_path,
        {
            "text": "x",
            "declared.py": b"# coding: latin-1\nx = '\xe9'\n",
            "binary": b"\0",
            "encoding": b"\xe9",
            "empty": b"",
            "blank": b"\n\n",
            "big": b"x" * (LIMIT_BYTES + 1),
            "limit": b"x" * LIMIT_BYTES,
        },
    )
    (tmp_path / "link").symlink_to("text")
    if git:
        create_repository(tmp_path).commit()
    changes, run = sync(tmp_path)
    assert sorted(one.uri for one in changes) == ["declared.py", "limit", "text"]
    assert run.report.found == 9
    assert run.report.skipped == Counter(
        {Skip.BINARY: 1, Skip.ENCODING: 1, Skip.EMPTY: 2, Skip.OVERSIZED: 1, Skip.SYMLINK: 1}
    )


@pytest.mark.parametrize("content", [b"\0", b"", b"x" * (LIMIT_BYTES + 1)])
@pytest.mark.parametrize("git", [True, False])
def test_a_document_that_is_no_longer_text_is_deleted(
    tmp_path: Path, git: bool, content: bytes
) -> None:
    """A document that is not text any more is deleted, and published once it is text again."""
    store: Callable[[], object] = create_repository(tmp_path).commit if git else lambda: None
    write_files(tmp_path, {"a": "text"})
    store()
    _, first = sync(tmp_path)
    write_files(tmp_path, {"a": content})
    store()
    changes, second = sync(tmp_path, first)
    assert brief(changes) == [("delete", "a")]
    assert sync(tmp_path, second)[0] == []
    write_files(tmp_path, {"a": "text"})
    store()
    assert brief(sync(tmp_path, second)[0]) == [("upsert", "a")]


def test_a_renamed_file_that_became_binary_is_deleted(tmp_path: Path) -> None:
    """The old uri of a renamed file that became binary is deleted."""
    repository = create_repository(tmp_path, {"old": BODY})
    _, first = sync(tmp_path)
    repository.git("mv", "old", "new")
    repository.commit({"new": BODY + "\0"})
    assert brief(sync(tmp_path, first)[0]) == [("delete", "old")]


def test_a_part_of_a_repository_keeps_repository_paths(tmp_path: Path) -> None:
    """A part of a repository is published with the paths of the repository."""
    create_repository(tmp_path, {"top": "1", "part[1]/a": "2", "part1/b": "3"})
    changes, run = sync(tmp_path / "part[1]")
    assert brief(changes) == [("upsert", "part[1]/a")]
    assert run.report.found == 1


def test_an_untracked_directory_of_a_repository_is_a_plain_directory(tmp_path: Path) -> None:
    """Build results can be synced although git ignores them."""
    create_repository(tmp_path, {"a": "1", ".gitignore": "build\n"})
    write_files(tmp_path, {"build/result.txt": "x"})
    assert isinstance(open_source(tmp_path), GitSource)
    assert isinstance(open_source(tmp_path / "build"), DirectorySource)
    assert brief(sync(tmp_path / "build")[0]) == [("upsert", "result.txt")]


def test_a_directory_obeys_nested_ignore_rules(tmp_path: Path) -> None:
    """``.gitignore`` and ``.headraceignore`` apply at every level."""
    write_files(
        tmp_path,
        {
            ".gitignore": "*.log\n/build/\n",
            "a.log": "ignored",
            "build/x": "ignored",
            "inner/build/x": "kept",
            "inner/.gitignore": "!keep.log\n",
            "inner/keep.log": "kept",
            "inner/.headraceignore": "secret\nother.log\n",
            "inner/secret": "ignored",
            ".git/config": "ignored",
        },
    )
    source = DirectorySource(tmp_path)
    assert set(source.list(LIMITS).files) == {
        ".gitignore",
        "inner/.gitignore",
        "inner/.headraceignore",
        "inner/build/x",
        "inner/keep.log",
    }


def test_a_directory_gives_edits_deletes_and_renames(tmp_path: Path) -> None:
    """A renamed directory gives renames by content; links and pipes are skipped."""
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    write_files(tmp_path, {"outside/secret": "s", "root/old/a": "1", "root/old/b": "2"})
    write_files(root, {"edited": "3", "gone": "4"})
    (root / "link").symlink_to(outside)
    os.mkfifo(root / "pipe")
    _, first = sync(root)
    (root / "old").rename(root / "new")
    (root / "gone").unlink()
    write_files(root, {"edited": "5"})
    changes, second = sync(root, first)
    assert brief(changes) == [
        ("rename", "old/a", "new/a"),
        ("rename", "old/b", "new/b"),
        ("upsert", "edited"),
        ("delete", "gone"),
    ]
    assert second.report.skipped == Counter({Skip.SYMLINK: 1, Skip.SPECIAL: 1})
    assert sync(root, second)[0] == []


def test_a_file_that_changes_while_it_is_synced_is_remembered_as_it_was_read(
    tmp_path: Path,
) -> None:
    """The state contains the content that was published, even if the file has changed since."""
    write_files(tmp_path, {"a": "1", "b": "2", "c": "3"})
    run = begin(open_source(tmp_path))
    write_files(tmp_path, {"b": "changed"})
    (tmp_path / "c").unlink()
    changes = list(run)
    assert [one.content for one in changes] == ["1", "changed"]
    assert run.report.skipped == Counter({Skip.UNREADABLE: 1})
    assert sync(tmp_path, Synced(run.state(), applied({}, changes)))[0] == []


def test_a_file_that_becomes_a_link_while_it_is_synced_is_not_followed(tmp_path: Path) -> None:
    """A file that is replaced by a link during a sync is skipped."""
    write_files(tmp_path, {"secret": "s", "root/a": "1"})
    run = begin(open_source(tmp_path / "root"))
    (tmp_path / "root" / "a").unlink()
    (tmp_path / "root" / "a").symlink_to("../secret")
    assert list(run) == []
    assert run.report.skipped == Counter({Skip.UNREADABLE: 1})


def interrupted(path: Path, before: Synced) -> tuple[list[Change], Synced]:
    """Simulate a sync that is killed after publishing, before any change is applied."""
    run = begin(open_source(path), before)
    return list(run), Synced(run.state(run.touched(0, run.total)), before.indexed)


def test_a_killed_sync_is_published_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a killed sync is published over, even if the file is as it was before."""
    monkeypatch.setattr("sources.files._SETTLED_NANOSECONDS", -(10**9))
    write_files(tmp_path, {"a": "A", "gone": "x", "kept": "k"})
    _, first = sync(tmp_path)
    write_files(tmp_path, {"a": "B"})
    (tmp_path / "gone").unlink()
    published, killed = interrupted(tmp_path, first)
    assert brief(published) == [("upsert", "a"), ("delete", "gone")]
    write_files(tmp_path, {"a": "A", "gone": "x"})
    back, second = sync(tmp_path, killed)
    assert brief(back) == [("upsert", "a"), ("upsert", "gone")]
    assert {one.reason for one in back} == {Reason.INTERRUPTED}
    assert sync(tmp_path, second)[0] == []


def test_a_killed_sync_of_a_file_that_is_no_text_any_more_leaves_nothing(tmp_path: Path) -> None:
    """The text of a killed sync is deleted if the file is binary again."""
    write_files(tmp_path, {"a": b"\0"})
    _, first = sync(tmp_path)
    write_files(tmp_path, {"a": "text", "b": "new"})
    _, killed = interrupted(tmp_path, first)
    write_files(tmp_path, {"a": b"\0"})
    (tmp_path / "b").unlink()
    run = begin(open_source(tmp_path), killed)
    assert brief(list(run)) == [("delete", "a"), ("delete", "b")]


def test_two_syncs_never_publish_one_event(tmp_path: Path) -> None:
    """Event ids differ by revision and are equal for the same revision."""
    write_files(tmp_path, {"a": "A"})
    [change] = sync(tmp_path)[0]
    ids = [
        document_changed(change, "project", origin=Origin(source="0" * 32, revision=revision)).id
        for revision in (1, 1, 2)
    ]
    assert ids[0] == ids[1] != ids[2]


def test_what_the_index_has_lost_is_published_again(tmp_path: Path) -> None:
    """Missing or different documents are published again, and unknown ones deleted."""
    write_files(tmp_path, {"a": "1", "b": "2", "c": "3"})
    _, first = sync(tmp_path, collections=("rules",))
    indexed = dict(first.indexed)
    del indexed["a"]
    indexed["b"] = IndexedDocument("0" * 64, ("rules",))
    indexed["stray"] = IndexedDocument("1" * 64)
    changes, second = sync(tmp_path, replace(first, indexed=indexed), collections=("rules",))
    assert brief(changes) == [("upsert", "a"), ("upsert", "b"), ("delete", "stray")]
    assert [one.reason for one in changes] == [Reason.LOST, Reason.LOST, Reason.DELETED]
    changes, third = sync(tmp_path, second)
    assert {one.reason for one in changes} == {Reason.COLLECTIONS}
    assert len(changes) == 3
    assert sync(tmp_path, third)[0] == []
    assert {one.reason for one in sync(tmp_path, third, full=True)[0]} == {Reason.FULL}


def test_only_files_that_changed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only files with changed metadata are read; without a state all are read."""
    monkeypatch.setattr("sources.files._SETTLED_NANOSECONDS", -(10**9))
    write_files(tmp_path, {"a": "1", "b": "2"})
    _, first = sync(tmp_path)
    read: list[str] = []

    def note(path: Path, most_bytes: int) -> Content:
        read.append(path.name)
        return read_marked(path, most_bytes)

    monkeypatch.setattr("sources.directory.read_marked", note)
    assert sync(tmp_path, first)[0] == []
    assert read == []
    write_files(tmp_path, {"b": "3"})
    assert brief(sync(tmp_path, first)[0]) == [("upsert", "b")]
    assert read == ["b"]
    write_files(tmp_path, {"b": "2"})
    assert brief(list(begin(open_source(tmp_path), Synced(indexed=first.indexed)))) == []
    assert read == ["b", "a", "b"]


def test_a_file_that_changed_just_now_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that has just changed is stored without a mark, so that it is read again."""
    monkeypatch.setattr("sources.files._SETTLED_NANOSECONDS", 60 * 10**9)
    write_files(tmp_path, {"a": "1"})
    _, first = sync(tmp_path)
    assert first.state.files["a"][0] == ""


def test_bad_paths_give_one_clear_line(tmp_path: Path) -> None:
    """Bad paths give a one-line error."""
    (tmp_path / "file").write_text("x")
    empty = create_repository(tmp_path / "empty")
    for path, message in (
        (tmp_path / "missing", "doesn't exist"),
        (tmp_path / "file", "not a directory"),
        (empty.path, "commit first"),
        (empty.path / ".git", "can't be read by git"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            open_source(path)
        assert "\n" not in str(caught.value)


def test_a_directory_without_rights_gives_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that the user may not enter gives an error with a remedy."""
    closed = tmp_path / "closed"
    closed.mkdir()
    stat = Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if path.parent == closed:  # root may enter every directory, so its rights don't matter
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(UsageError) as caught:
        open_source(closed)
    assert str(caught.value).startswith(f"{closed} can't be read: Permission denied; let this user")


def test_a_directory_that_vanished_is_said_to_be_missing(tmp_path: Path) -> None:
    """The error of a directory that was removed names no rights as its remedy."""
    gone = tmp_path / "gone"
    gone.mkdir()
    source = open_directory(gone)
    gone.rmdir()
    with pytest.raises(UsageError) as caught:
        source.watched()
    assert str(caught.value) == f"{gone} can't be read: No such file or directory"


def test_an_unreadable_file_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable file is counted, and the others are published."""
    write_files(tmp_path, {"a": "1", "b": "2"})

    def refuse(path: Path, most_bytes: int) -> Content:
        if path.name == "a":
            raise PermissionError(path)
        return read_marked(path, most_bytes)

    monkeypatch.setattr("sources.directory.read_marked", refuse)
    changes, run = sync(tmp_path)
    assert brief(changes) == [("upsert", "b")]
    assert run.report.skipped == Counter({Skip.UNREADABLE: 1})


def test_the_standard_library_loses_no_file() -> None:
    """Every file of Python's own tests is published or skipped with a reason.

    Folders that are left out as a whole count once.
    """
    root = Path(sysconfig.get_path("stdlib")) / "test"
    if not (root / "test_source_encoding.py").exists():
        pytest.skip("this Python was packaged without its tests")
    skipped = DirectorySource(root).list(SizeLimits(2 * 2**20, 2 * 2**20)).skipped_paths
    folders = {root / path for path in skipped if path.endswith("/")}
    files = [path for path in root.rglob("*") if not stat.S_ISDIR(path.lstat().st_mode)]
    outside = sum(folders.isdisjoint(path.parents) for path in files)
    run = begin(DirectorySource(root), max_bytes=2 * 2**20)
    assert run.report.found == outside + len(folders)
    published = sum(document_changed(one, "python").data.change == "upsert" for one in run)
    assert published == run.report.published > 500
    assert run.report.found == published + run.report.skipped.total()
    assert "test_source_encoding.py" in run.state().files


def test_git_is_not_misled_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync ignores git's environment variables of another repository."""
    create_repository(tmp_path / "named", {"a": "1"})
    other: Repository = create_repository(tmp_path / "other", {"b": "2"})
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    assert brief(sync(tmp_path / "named")[0]) == [("upsert", "a")]
