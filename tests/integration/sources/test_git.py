"""Git sources: identity of a repository, order of commits, and uncommitted changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.errors import UsageError
from sources import Skip, open_source
from sources.git import GitSource
from sources.git_index import present_files, tracked_files
from tests.support.repositories import Repository, create_repository, write_files
from tests.support.syncs import LIMITS, Synced, sync


def clone(repository: Repository, path: Path, *options: str) -> Repository:
    repository.git("clone", "--quiet", *options, f"file://{repository.path}", str(path))
    return Repository(path)


def test_two_checkouts_of_a_repository_are_one_source(tmp_path: Path) -> None:
    """Checkouts and mirrors of a repository are one source; parts and others are not."""
    repository = create_repository(tmp_path / "one", {"a/b.md": "text"})
    other = create_repository(tmp_path / "two", {"a/b.md": "another text"})
    keys = [
        open_source(path).key
        for path in (
            repository.path,
            clone(repository, tmp_path / "checkout").path,
            clone(repository, tmp_path / "mirror.git", "--mirror").path,
            repository.path / "a",
            other.path,
        )
    ]
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys)) == 3
    plain = tmp_path / "plain"
    write_files(plain, {"b.md": "text"})
    assert open_source(plain).key == f"directory:{plain}"


def test_a_shallow_clone_is_known_by_its_remote(tmp_path: Path) -> None:
    """A shallow clone is identified by its remote, because it lacks the first commit."""
    repository = create_repository(tmp_path / "one", {"a": "1"})
    repository.commit({"a": "2"})
    shallow = [clone(repository, tmp_path / name, "--depth=1").path for name in ("x", "y")]
    assert open_source(shallow[0]).key == open_source(shallow[1]).key
    assert open_source(shallow[0]).key != open_source(repository.path).key


def test_a_key_is_recalled_for_the_same_commit_only(tmp_path: Path) -> None:
    """The key of another commit or folder is that of the repository."""
    repository = create_repository(tmp_path / "one", {"a.md": "1", "b/c.md": "2"})
    first = repository.git("rev-parse", "HEAD")
    for folder, key, recalled in (
        (repository.path, "git:known:", "git:known:"),
        (repository.path / "b", "git:known:b/", "git:known:b/"),
        (repository.path / "b", "git:known:", f"git:{first}:b/"),
    ):
        source = open_source(folder)
        assert isinstance(source, GitSource)
        source.recall_key(key, first)
        assert source.key == recalled
    repository.commit({"a.md": "3"})
    source = open_source(repository.path)
    assert isinstance(source, GitSource)
    source.recall_key("git:known:", first)
    assert source.key == f"git:{first}:"


@pytest.mark.parametrize("option", ["--mirror", "--bare"])
def test_a_repository_without_a_work_tree_is_git(tmp_path: Path, option: str) -> None:
    """A bare repository gives the files at HEAD."""
    repository = create_repository(tmp_path / "one", {"a.md": "text", "b/c.md": "more"})
    bare = open_source(clone(repository, tmp_path / "m.git", option).path)
    assert isinstance(bare, GitSource)
    assert {one.uri for one in sync(bare)[0]} == {"a.md", "b/c.md"}
    assert bare.uncommitted(bare.list(LIMITS)) == 0
    with pytest.raises(UsageError, match="no work tree"):
        open_source(tmp_path / "m.git", worktree=True)


def test_ancestry_decides_which_commit_is_older(tmp_path: Path) -> None:
    """Ancestry decides which commit is older; for unknown commits the times decide."""
    repository = create_repository(tmp_path / "one", {"a": "1"})
    old = clone(repository, tmp_path / "old")
    repository.commit({"a": "2"})
    new_listing = open_source(repository.path).list(LIMITS)
    assert new_listing.commit is not None
    assert new_listing.committed_at is not None
    source = open_source(old.path)
    listing = source.list(LIMITS)
    new, at = new_listing.commit, new_listing.committed_at
    assert not source.is_older(listing, str(listing.commit), listing.committed_at)
    assert source.is_older(listing, new, at + 1), "unknown here, and later"
    assert not source.is_older(listing, new, at - 10**6), "unknown here, and earlier"
    assert not source.is_older(listing, new, None)
    old.git("fetch", "--quiet")
    assert source.is_older(listing, new, 0), "known here: the times don't count"
    whole = open_source(repository.path)
    assert not whole.is_older(new_listing, str(listing.commit), at + 10**6)
    repository.git("commit", "--quiet", "--amend", "--message", "rewritten")
    rewritten = whole.list(LIMITS)
    assert not whole.is_older(rewritten, new, at)


def test_uncommitted_changes_are_counted_and_can_be_synced(tmp_path: Path) -> None:
    """Uncommitted changes are counted without ignored files, and can be synced."""
    repository = create_repository(
        tmp_path / "one",
        {"kept": "0", "edited": "1", "gone": "2", "touched": "3", ".gitignore": "*.log\n"},
    )
    source = open_source(repository.path)
    assert source.uncommitted(source.list(LIMITS)) == 0
    repository.write({"staged": "4"})
    repository.git("add", "staged")
    repository.write({"edited": "one", "untracked": "5", "x.log": "6", "touched": "3", ".env": "7"})
    (repository.path / "gone").unlink()
    assert source.uncommitted(source.list(LIMITS)) == 4
    _, first = sync(source)
    tree = open_source(repository.path, worktree=True)
    assert tree.key == source.key
    changes, second = sync(tree, first)
    assert {(one.change, one.uri) for one in changes} == {
        ("upsert", "edited"),
        ("delete", "gone"),
        ("upsert", "staged"),
        ("upsert", "untracked"),
    }
    assert second.report.skipped_paths[".env"] is Skip.SECRET
    assert sync(tree, second)[0] == []


def test_untracked_files_are_not_taken_for_lines_of_the_index(tmp_path: Path) -> None:
    """Files are told apart by git's tags, whatever their names look like."""
    repository = create_repository(tmp_path / "one", {"a.md": "a", "folder/b.md": "b"})
    blob = repository.git("rev-parse", "HEAD:a.md")
    strange = [f"100644 {blob} 0\tc.md", "H d.md", "? e.md"]
    repository.write(dict.fromkeys(strange, "new"))
    untracked, tracked = present_files(repository.path)
    assert sorted(map(os.fsdecode, untracked)) == sorted(strange)
    assert [file.path for file in tracked] == [b"a.md", b"folder/b.md"]
    assert next(tracked_files(repository.path)).blob == blob


def test_a_work_tree_leads_nowhere_else(tmp_path: Path) -> None:
    """A folder that became a link is not followed, and no filter is run."""
    write_files(tmp_path, {"outside/secret.md": "secret"})
    repository = create_repository(tmp_path / "one", {"docs/secret.md": "harmless", "a.md": "a"})
    mark = tmp_path / "ran"
    repository.git("config", "filter.evil.clean", f"touch {mark}")
    repository.commit({".gitattributes": "* filter=evil\n"})
    mark.unlink(missing_ok=True)
    (repository.path / "docs" / "secret.md").unlink()
    (repository.path / "docs").rmdir()
    (repository.path / "docs").symlink_to(tmp_path / "outside")
    repository.write({"a.md": "edited"})
    source = open_source(repository.path)
    assert source.uncommitted(source.list(LIMITS)) >= 2
    changes, _ = sync(open_source(repository.path, worktree=True), Synced())
    assert {one.content for one in changes} <= {"edited", "* filter=evil\n"}
    assert not mark.exists()
