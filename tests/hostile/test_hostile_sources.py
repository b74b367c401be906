"""Directories and repositories that are made to harm the syncing process."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from runtime.errors import UsageError
from sources import Skip, document_changed, git_process, open_source
from tests.support.hostile_values import CONTROLS
from tests.support.repositories import Repository, create_repository
from tests.support.syncs import begin
from tests.support.tally import Record

LIMIT_BYTES = 100_000
MARK = "the-hook-ran"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file outside, which no source below may reveal."""
    path = tmp_path / "outside" / "secret.txt"
    path.parent.mkdir()
    path.write_text("what nobody may see")
    return path


def published(path: Path) -> tuple[dict[str, str | None], Counter[Skip]]:
    """Content by uri that a sync would publish, and the skipped files by reason."""
    run = begin(open_source(path), max_bytes=LIMIT_BYTES)
    events = [document_changed(change, "project") for change in run]
    return {one.data.uri: one.data.content for one in events}, run.report.skipped


def hash_object(repository: Repository, raw: bytes, kind: str = "blob") -> str:
    """Write an object that ``git add`` would refuse, and return its id."""
    command = ["git", "-C", str(repository.path), "hash-object", "-w", "-t", kind, "--literally"]
    found = subprocess.run([*command, "--stdin"], input=raw, capture_output=True, check=True)
    return found.stdout.decode().strip()


def commit_tree(repository: Repository, entries: list[tuple[str, bytes, str]]) -> None:
    """Point HEAD to a tree of (mode, name, object id), even if git considers it invalid."""
    raw = b"".join(
        mode.encode() + b" " + name + b"\0" + bytes.fromhex(one) for mode, name, one in entries
    )
    tree = hash_object(repository, raw, "tree")
    commit = repository.git("commit-tree", tree, "-m", "hostile")
    repository.git("update-ref", "HEAD", commit)


def test_odd_names_are_published_or_skipped(tmp_path: Path, record: Record) -> None:
    """Names with control characters, option-like names and long names are published or skipped."""
    names = [
        *(control.replace("/", "") for control in CONTROLS),
        *("-rf", "--", "--help", "$(reboot)", "`id`", ";ls", "a b", "'", '"', "\\", "%s", "*", "?"),
        *(".headraceignorex", "a\u0301", "\u00e4", "CON", "{path}", "#L1", "a" * 255),
    ]
    directory = tmp_path / "plain"
    deep = directory.joinpath(*["ü" * 120] * 9)
    deep.mkdir(parents=True)
    (deep / "long.txt").write_text("too long a uri")
    for name in names:
        (directory / name).write_text("content")
    (directory / os.fsdecode(b"\xff\xfe")).write_text("content")
    os.mkfifo(directory / "pipe")
    found, skipped = published(directory)
    assert set(found) == set(names)
    assert skipped == {Skip.NAME: 2, Skip.SPECIAL: 1}
    repository = create_repository(tmp_path / "git")
    blob = hash_object(repository, b"content")
    deep_name = b"/".join([("ü" * 120).encode()] * 9)
    entries = [("100644", os.fsencode(name), blob) for name in [*names, os.fsdecode(b"\xff\xfe")]]
    commit_tree(repository, sorted([*entries, ("100644", deep_name, blob)]))
    found, skipped = published(repository.path)
    assert set(found) == set(names)
    assert skipped == {Skip.NAME: 2}
    record("odd names", Counter(published=2 * len(names), skipped=5))


def test_a_path_at_the_end_of_what_the_system_can_open(tmp_path: Path) -> None:
    """Files with longer paths than the system can open are skipped, and the others published."""
    (tmp_path / "near.txt").write_text("near")
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("far.txt", os.O_CREAT, dir_fd=here))
    os.close(here)
    found, skipped = published(tmp_path)
    assert found == {"near.txt": "near"}
    assert skipped.total() >= 1


def test_no_link_leads_out(tmp_path: Path, outside: Path) -> None:
    """No symbolic link is followed, even if it replaces a file during a sync."""
    directory = tmp_path / "plain"
    directory.mkdir()
    (directory / "a.txt").write_text("inside")
    (directory / "link").symlink_to(outside)
    (directory / "tree").symlink_to(outside.parent)
    (directory / "loop").symlink_to(directory)
    (directory / ".gitignore").symlink_to(outside)
    run = begin(open_source(directory), max_bytes=LIMIT_BYTES)
    (directory / "a.txt").unlink()
    (directory / "a.txt").symlink_to(outside)
    assert list(run) == []
    repository = create_repository(tmp_path / "git", {"b.txt": "inside"})
    (repository.path / "link").symlink_to(outside)
    (repository.path / "tree").symlink_to(outside.parent)
    repository.commit()
    found, skipped = published(repository.path)
    assert found == {"b.txt": "inside"}
    assert skipped == {Skip.SYMLINK: 2}


def test_a_tree_that_points_out_stays_inside(tmp_path: Path, outside: Path, record: Record) -> None:
    """Names such as ``..``, ``.git`` and absolute paths of a git tree open no file outside."""
    repository = create_repository(tmp_path / "git")
    blob = hash_object(repository, b"inside")
    names = [b"", b".", b"..", b"../outside/secret.txt", b".git", str(outside).encode(), b"a//b"]
    tree = hash_object(repository, b"100644 secret.txt\0" + bytes.fromhex(blob), "tree")
    entries = [("100644", name, blob) for name in names]
    entries += [("40000", b"..", tree), ("160000", b"module", blob), ("120000", b"link", blob)]
    commit_tree(repository, sorted(entries))
    try:
        found, _ = published(repository.path)
    except UsageError:
        found = {}
    assert set(found.values()) <= {"inside"}
    record("names that point out", Counter(harmless=len(entries)))


def test_nothing_of_a_repository_is_run(tmp_path: Path) -> None:
    """A sync runs no hook, filter, monitor, diff driver or alias of a repository."""
    repository = create_repository(tmp_path / "git", {"a.txt": "content", "b.md": "# B"})
    mark = tmp_path / MARK
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    for hook in (
        "post-checkout",
        "post-index-change",
        "fsmonitor-watchman",
        "reference-transaction",
    ):
        target = repository.path / ".git/hooks" / hook
        target.write_text(script.read_text())
        target.chmod(0o755)
    for key in (
        *("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "core.askPass"),
        *("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv"),
        *(
            "diff.external",
            "diff.evil.command",
            "credential.helper",
            "gpg.program",
            "pager.ls-tree",
        ),
        *("alias.ls-tree", "alias.cat-file", "uploadpack.packObjectsHook"),
    ):
        repository.git("config", key, str(script))
    repository.commit({".gitattributes": "* filter=evil diff=evil\n"})
    mark.unlink(missing_ok=True)
    (repository.path / "a.txt").write_text("touched")
    found, _ = published(repository.path)
    assert found["a.txt"] == "content"
    assert not mark.exists()


def test_a_git_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository whose trees name ten billion files in two kilobytes is refused."""
    monkeypatch.setattr(git_process, "LARGEST_OUTPUT_BYTES", 2**20)
    repository = create_repository(tmp_path)
    one = hash_object(repository, b"content")
    mode = "100644"
    for _ in range(10):
        rows = [f"{mode} {number}\0".encode() + bytes.fromhex(one) for number in range(10)]
        one, mode = hash_object(repository, b"".join(rows), "tree"), "40000"
    commit = repository.git("commit-tree", one, "-m", "bomb")
    repository.git("update-ref", "HEAD", commit)
    with pytest.raises(UsageError, match="only what you trust"):
        published(tmp_path)


@pytest.mark.parametrize("place", [".git/packed-refs", "config", "object"])
def test_a_pipe_without_a_writer_does_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A pipe instead of a git file, an included config or an object doesn't block a sync."""
    monkeypatch.setattr(git_process, "LONGEST_WAIT", timedelta(seconds=1))
    repository = create_repository(tmp_path, {"a.txt": "content"})
    blob = repository.git("rev-parse", "HEAD:a.txt")
    pipe = repository.path / {
        "config": "pipe",
        "object": f".git/objects/{blob[:2]}/{blob[2:]}",
    }.get(place, place)
    if place == "config":
        repository.git("config", "include.path", str(pipe))
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    try:
        found, _ = published(tmp_path)
    except UsageError as error:
        assert re.search("did not finish|no commit", str(error))  # noqa: PT017 - either is fine
    else:
        assert found == {"a.txt": "content"}


def test_rules_that_are_too_large_or_make_no_sense(tmp_path: Path) -> None:
    """Rules above the size limit are ignored; rules with too many stars are refused."""
    large = b"*.md\n" * 300_000
    repository = create_repository(tmp_path, {"a.md": "# A", ".headraceignore": large})
    assert set(published(tmp_path)[0]) == {"a.md"}
    repository.commit({".headraceignore": "!\n\\\n![{-*]#a\n*.log\n", "b.log": "x"})
    assert set(published(tmp_path)[0]) == {"a.md", ".headraceignore"}
    repository.commit({".headraceignore": "*a*a*a*a*a*a*a*b\n"})
    with pytest.raises(UsageError, match="stars"):
        published(tmp_path)


def test_a_remote_with_an_endless_address(tmp_path: Path) -> None:
    """Documents of a repository with an overlong remote address are published."""
    repository = create_repository(tmp_path, {"a.md": "# A"})
    repository.git("remote", "add", "origin", f"https://github.com/owner/{'n' * 3000}")
    assert published(tmp_path)[0] == {"a.md": "# A"}
