"""Changes that can alter the listing of a source, and those that can't."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runtime.errors import UsageError
from sources.directory import DirectorySource
from sources.ignore_rules import Choice
from sources.watched import WatchedReferences, alters_folders
from tests.support.repositories import write_files


def test_only_changes_of_documents_and_rules_count_in_a_directory(tmp_path: Path) -> None:
    """Ignored files and folders, git's own files and those of editors are noise."""
    write_files(
        tmp_path,
        {
            ".gitignore": "*.log\n/out/\n",
            "a.md": "a",
            "docs/.headraceignore": "drafts/\n",
            "docs/b.md": "b",
            "docs/drafts/c.md": "c",
            "node_modules/x/d.md": "d",
            "out/e.md": "e",
            ".git/HEAD": "ref: refs/heads/main",
        },
    )
    (tmp_path / "empty").mkdir()
    source = DirectorySource(tmp_path, Choice(include=("debug.log",)))
    watched = source.watched()
    root = str(tmp_path.resolve())
    assert watched.folders == {root, f"{root}/docs", f"{root}/empty"}
    for path in (
        "a.md",
        "docs/b.md",
        "docs/gone.md",
        "empty/new.md",
        ".gitignore",
        "debug.log",
        "docs",
    ):
        assert not watched.is_noise(f"{root}/{path}"), path
    for path in (
        "server.log",
        "docs/server.log",
        "docs/drafts",
        "docs/drafts/c.md",
        "node_modules",
        "node_modules/x/d.md",
        "out/e.md",
        ".git/HEAD",
        ".git/index.lock",
        "4913",
        "a.md~",
        ".a.md.swp",
        "docs/.#b.md",
        "docs/#b.md#",
        "b.md___jb_tmp___",
        ".~lock.a.odt#",
        "~$a.docx",
    ):
        assert watched.is_noise(f"{root}/{path}"), path
    assert watched.is_noise(str(tmp_path.parent / "elsewhere.md"))


def test_a_file_of_rules_counts_though_it_leaves_itself_out(tmp_path: Path) -> None:
    write_files(tmp_path, {".gitignore": ".*\n", "docs/.headraceignore": "*\n", ".env": ""})
    watched = DirectorySource(tmp_path).watched()
    root = str(tmp_path.resolve())
    assert not watched.is_noise(f"{root}/.gitignore")
    assert not watched.is_noise(f"{root}/docs/.headraceignore")
    assert watched.is_noise(f"{root}/.env")


def test_folders_are_found_again_after_changes_that_alter_them(tmp_path: Path) -> None:
    """A new or gone folder and a changed file of rules alter them; a changed document does not."""
    write_files(tmp_path, {"a.md": "a", "docs/b.md": "b", ".gitignore": ""})
    source = DirectorySource(tmp_path)
    watched = source.watched()
    root = str(tmp_path.resolve())
    assert not alters_folders(watched, f"{root}/a.md")
    assert alters_folders(watched, f"{root}/.gitignore")
    (tmp_path / "new").mkdir()
    assert alters_folders(watched, f"{root}/new")
    link = tmp_path / "link"
    link.symlink_to("x" * 300)  # a target for which the operating system has only errors
    assert not alters_folders(watched, str(link))
    assert not watched.is_noise(str(link))
    shutil.rmtree(tmp_path / "docs")
    assert alters_folders(watched, f"{root}/docs")
    assert source.watched().folders == {root, f"{root}/new"}
    shutil.rmtree(tmp_path)
    with pytest.raises(UsageError, match="can't be read"):
        source.watched()


def test_only_changes_of_head_and_branches_count_in_a_repository(tmp_path: Path) -> None:
    """The index, objects, logs, other references and locks are noise."""
    common, own = tmp_path / "common", tmp_path / "common" / "worktrees" / "w"
    for folder in ("refs/heads/feature", "refs/tags", "objects", "logs", "worktrees/w", "reftable"):
        (common / folder).mkdir(parents=True)
    watched = WatchedReferences(str(own), str(common))
    heads = common / "refs" / "heads"
    assert watched.folders == set(
        map(str, (own, common, heads, heads / "feature", common / "reftable"))
    )
    for path in (
        own / "HEAD",
        common / "packed-refs",
        heads / "main",
        heads / "feature" / "x",
        heads / "new",
        common / "reftable" / "tables.list",
    ):
        assert not watched.is_noise(str(path)), path
    for path in (
        common / "HEAD",
        own / "HEAD.lock",
        own / "index",
        heads / "main.lock",
        common / "refs" / "tags" / "v1",
        common / "ORIG_HEAD",
        common / "COMMIT_EDITMSG",
    ):
        assert watched.is_noise(str(path)), path
