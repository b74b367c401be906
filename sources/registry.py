"""Registry of the kinds of sources, and opening of the source at a path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from runtime.errors import UsageError
from sources.directory import RIGHTS_REMEDY, open_directory
from sources.git import GitSource, open_git
from sources.git_worktree import WorkTreeSource
from sources.ignore_rules import Choice
from sources.types import Source

__all__ = ["KINDS", "open_source"]

KINDS: Mapping[str, Callable[[Path, Choice], Source | None]] = {
    "git": open_git,
    "directory": open_directory,
}
"""Kinds in the order in which they are tried; the first that recognises a path opens it."""


def open_source(
    location: Path | str,
    include: Iterable[str] = (),
    homes: Iterable[Path] = (),
    *,
    worktree: bool = False,
    branch: str | None = None,
    exclude: Iterable[str] = (),
) -> Source:
    """Open the source at a path or a URL.

    Args:
        location: path of a directory, or a URL of a bucket.
        include: patterns, in the format of ``.gitignore``, for files to include that would be left
            out.
        homes: homes of Headrace itself, which are left out.
        worktree: if set, take the current files of a repository instead of the committed ones.
        branch: take the files of this branch of a repository instead of those at HEAD.
        exclude: patterns of files of a bucket to leave out.

    Raises:
        UsageError: the directory does not exist or can't be read, or has no work tree.
        ConfigurationError: the driver of the URL is not installed.
    """
    if "://" in str(location):
        if worktree or branch is not None:
            raise UsageError(
                f"{location!s:.100} is not a repository", "leave out --worktree and --branch"
            )
        return _open_url(str(location), tuple(include), tuple(exclude))
    if exclude:
        raise UsageError(
            "--exclude is for URLs", "write the patterns into a .headraceignore in the directory"
        )
    path = Path(location).expanduser()
    try:
        return _open_path(
            path, Choice(tuple(include), tuple(homes)), worktree=worktree, branch=branch
        )
    except PermissionError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}", RIGHTS_REMEDY) from error


def _open_path(path: Path, choice: Choice, *, worktree: bool, branch: str | None) -> Source:
    if str(path).startswith("github:") and not path.exists():
        raise UsageError(
            f"{path!s:.100} is not a directory",
            "publish issues and pull requests by `headrace github OWNER/NAME`",
        )
    if not path.exists():
        raise UsageError(f"{path} doesn't exist", "name a git repository or a directory")
    if not path.is_dir():
        raise UsageError(f"{path} is not a directory", "name a git repository or a directory")
    for recognise in KINDS.values():
        source = recognise(path, choice)
        if source is not None and branch is not None:
            return _branch_of(source, branch, worktree=worktree)
        if source is not None:
            return _work_tree_of(source) if worktree else source
    raise UsageError(f"{path} is not a source ({', '.join(KINDS)})", "name another path")


def _open_url(url: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> Source:
    if url.startswith(("http://", "https://")):
        raise UsageError(f"{url:.100} is a web site", "publish its pages by `headrace crawl`")
    # imported lazily, because the libraries of URLs are slow to import
    from sources.bucket import open_bucket  # noqa: PLC0415

    return open_bucket(url, include, exclude)


def _branch_of(source: Source, branch: str, *, worktree: bool) -> Source:
    if worktree:
        raise UsageError("a branch has no uncommitted files", "leave out --worktree or --branch")
    if not isinstance(source, GitSource):
        raise UsageError(f"{source.location} has no branches of git", "leave out --branch")
    return source.at_branch(branch)


def _work_tree_of(source: Source) -> Source:
    if not isinstance(source, GitSource) or not source.has_work_tree:
        raise UsageError(f"{source.location} has no work tree of git", "leave out --worktree")
    return WorkTreeSource.of(source)
