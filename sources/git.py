"""Source that is a git repository: the files tracked at HEAD."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from runtime.errors import UsageError
from sources.files import to_shown, to_uri
from sources.git_history import COMMIT, HEAD, head, is_older, repository_key
from sources.git_index import count_uncommitted
from sources.git_process import GitFailed, blob_reader, run_git
from sources.ignore_rules import (
    LARGEST_RULES_BYTES,
    RULES_FILE,
    Choice,
    IgnoreRules,
    TrackedPaths,
    rule_lines,
)
from sources.permalinks import permalink_template
from sources.types import Listing, Read, SizeLimits, Skip, SyncOptions, Watched
from sources.watched import WatchedReferences

__all__ = ["GitSource", "open_git"]

_KEY_CHARACTERS = 8
_SYMLINK_MODE = b"120000"
_SUBMODULE_MODE = b"160000"
_ALL = Choice()


def open_git(path: Path, choice: Choice = _ALL) -> GitSource | None:
    """Open the repository that contains a directory.

    Returns None if there is none, or if nothing in the directory is tracked (such as build results
    or an environment).

    Raises:
        UsageError: the path is inside a ``.git`` directory, there is no commit yet, or git can't
            read the repository.
    """
    if _is_bare(path):
        return GitSource(path.resolve(), "", choice)
    if not any((folder / ".git").exists() for folder in (path.resolve(), *path.resolve().parents)):
        return None
    root, prefix, is_shallow, commit = _work_tree(path)
    source = GitSource(root, prefix, choice, is_shallow=is_shallow, commit=commit)
    return source if not prefix or source.tracks_anything() else None


class GitSource:
    """Tracked files at HEAD or of a branch, below ``prefix`` (``""``, or ending in ``/``).

    Uris are paths relative to the root of the repository even if only a part of it is synced, so
    that permanent links are valid. Symbolic links and submodules are counted, but never followed.
    Uncommitted files are left out, and so are files named in the root's ``.headraceignore``, which
    is committed and has the format of ``.gitignore``: generated files that would crowd out answers.
    A tracked ``build`` or ``dist`` is included, because its owner made it a part of the source.
    """

    kind = "git"

    def __init__(
        self,
        root: Path,
        prefix: str = "",
        choice: Choice = _ALL,
        *,
        is_shallow: bool | None = None,
        commit: str = "",
        branch: str | None = None,
    ) -> None:
        self._root = root
        self._prefix = prefix
        self._choice = choice
        self._is_shallow = is_shallow
        self._commit = commit
        self._read_rules: tuple[str, Sequence[str]] = ("", ())
        self.branch = branch

    def at_branch(self, branch: str) -> GitSource:
        """Build the source of the files of a branch, which need not be checked out.

        Raises:
            UsageError: there is no such branch.
        """
        source = GitSource(self._root, self._prefix, self._choice, branch=branch)
        source._head()
        return source

    @property
    def name(self) -> str:
        """Folder and first letters of the repository's key, which make the name unique."""
        repository = self._repository[:_KEY_CHARACTERS]
        folder = "/".join(filter(None, (self._root.name, self._prefix.rstrip("/"))))
        return f"{folder}@{repository}"

    @property
    def key(self) -> str:
        """Identity, made of the repository's first commit and the part of it that is synced."""
        return f"git:{self._repository}:{self._prefix}"

    def recall_key(self, key: str, commit: str | None) -> None:
        """Take over the key of an earlier sync if the source was opened at the same commit.

        To find a key takes long in a long history.
        """
        repository, _, prefix = key.removeprefix("git:").partition(":")
        if commit == self._commit and prefix == self._prefix:
            self._repository = repository

    @property
    def location(self) -> str:
        """Absolute path of what is synced."""
        return str(self._root / self._prefix)

    @property
    def folder(self) -> str:
        """Beginning of the uris of all that is synced; empty for the whole repository."""
        return self._prefix

    @property
    def options(self) -> SyncOptions:
        """Patterns of files to include, and the branch."""
        return SyncOptions(include=self._choice.include, branch=self.branch)

    @property
    def has_work_tree(self) -> bool:
        """False for a bare repository."""
        return (self._root / ".git").exists()

    @property
    def is_linked(self) -> bool:
        """True for a work tree that `git worktree add` has made.

        Raises:
            UsageError: the repository can't be read.
        """
        if not (self._root / ".git").is_file():
            return False
        git_dir, common_dir = self._git_directories()
        return git_dir != common_dir

    @cached_property
    def _repository(self) -> str:
        with self._git_errors():
            return repository_key(self._root, self._is_shallow)

    def tracks_anything(self) -> bool:
        """True if anything below the prefix is tracked at HEAD.

        Raises:
            UsageError: the repository can't be read.
        """
        return bool(self._git("ls-tree", "-z", "HEAD", *self._paths()))

    def list(self, sizes: SizeLimits) -> Listing:
        """List everything at HEAD or of the branch, with blob ids as fingerprints.

        Raises:
            UsageError: there is no commit yet, or the repository no longer exists.
        """
        commit, at = self._head()
        files: dict[str, str] = {}
        skipped: dict[str, Skip] = {}
        entries = list(self._entries(commit))
        if not self._prefix and all(entry.uri != RULES_FILE for entry in entries):
            self._read_rules = commit, ()
        rules = self._rules(commit)
        paths = TrackedPaths(rules, (entry.uri for entry in entries if entry.uri), self._prefix)
        for entry in entries:
            path, reason = entry.skip(sizes, paths)
            if reason is not None:
                skipped[path] = reason
            elif entry.uri is not None:
                files[entry.uri] = entry.blob
        included = frozenset(filter(rules.includes, files))
        template = self._permalink_template()
        return Listing(files, skipped, commit, template, included, committed_at=at)

    def hooks_directory(self) -> Path:
        """Directory of the hooks that git runs for this repository alone.

        Raises:
            UsageError: core.hooksPath names a directory outside, or git can't read the repository.
        """
        arguments = ("rev-parse", "--git-path", "hooks", "--git-common-dir")
        with self._git_errors():
            output = run_git(self._root, *arguments, own_settings=True)
        hooks, common_dir = (
            (self._root / os.fsdecode(line)).resolve() for line in output.splitlines()
        )
        if not any(hooks.is_relative_to(own) for own in (common_dir, self._root.resolve())):
            raise UsageError(
                f"git runs the hooks in {hooks} (core.hooksPath) also for other repositories",
                f"give this one its own: git config --local core.hooksPath {common_dir}/hooks",
            )
        return hooks

    def watched(self) -> Watched:
        """Watch HEAD and the branches.

        Raises:
            UsageError: the repository no longer exists, or can't be read.
        """
        git_dir, common_dir = self._git_directories()
        return WatchedReferences(str(git_dir), str(common_dir))

    def is_older(self, listing: Listing, commit: str, committed_at: int | None) -> bool:
        """Compare by ancestry, or by commit times if the clone does not have the other commit."""
        if listing.commit is None:
            return False
        return is_older(self._root, listing.commit, listing.committed_at, commit, committed_at)

    def uncommitted(self, listing: Listing) -> int:
        """Count files of the work tree that differ from HEAD; 0 for a bare repository."""
        if not self.has_work_tree or listing.commit is None or self.branch is not None:
            return 0
        rules = self._rules(listing.commit)
        try:
            return count_uncommitted(self._root, listing, rules, *self._paths())
        except GitFailed:
            return 0

    def renames(self, commit: str | None, listing: Listing) -> Mapping[str, str]:
        """Renames that git detects by similarity; empty if ``commit`` is gone (a force push)."""
        if commit is None or listing.commit is None or not COMMIT.fullmatch(commit):
            return {}
        options = ("-r", "-z", "-M", "--name-status", "--diff-filter=R", "--no-ext-diff")
        try:
            output = run_git(
                self._root, "diff-tree", *options, commit, listing.commit, *self._paths()
            )
        except GitFailed:
            return {}
        fields = iter(output.split(b"\0")[:-1])
        pairs = (
            (to_uri(new), to_uri(old)) for _, old, new in zip(fields, fields, fields, strict=True)
        )
        return {new: old for new, old in pairs if new is not None and old is not None}

    def reader(self, sizes: SizeLimits) -> AbstractContextManager[Read]:
        """Reader of blobs; the listing has left out those over their limit."""
        del sizes
        return blob_reader(self._root)

    def _head(self) -> tuple[str, int]:
        if self.branch is not None:
            return self._tip(self.branch)
        try:
            return head(self._root)
        except GitFailed as error:
            raise UsageError(f"{self._root} has no commit ({error})", "commit first") from error

    def _git_directories(self) -> tuple[Path, Path]:
        """Directory of this work tree in the repository, and that of the repository."""
        output = self._git("rev-parse", "--git-dir", "--git-common-dir")
        git_dir, common_dir = (
            (self._root / os.fsdecode(line)).resolve() for line in output.splitlines()
        )
        return git_dir, common_dir

    def _tip(self, branch: str) -> tuple[str, int]:
        """Last commit of a branch, or of a remote's branch in the form ``origin/NAME``."""
        for place in ("refs/heads", "refs/remotes"):
            with suppress(GitFailed):
                return head(self._root, f"{place}/{branch}^{{commit}}")
        raise UsageError(f"{self._root} has no branch {branch!r}", "`git branch --all` lists them")

    def _entries(self, commit: str) -> Iterator[_Entry]:
        output = self._git("ls-tree", "-r", "-z", "-l", "--full-tree", commit, *self._paths())
        for line in output.split(b"\0")[:-1]:
            attributes, _, path = line.partition(b"\t")
            mode, _, blob, size_bytes = attributes.split()
            yield _Entry(path, to_uri(path), mode, blob.decode(), size_bytes)

    def _rules(self, commit: str) -> IgnoreRules:
        return IgnoreRules.at(self._root.resolve(), self._choice, self._rule_lines(commit))

    def _rule_lines(self, commit: str) -> Sequence[str]:
        """Lines of the rules file at the root, which are read once for each commit."""
        if self._read_rules[0] != commit:
            self._read_rules = commit, self._read_rule_lines(commit)
        return self._read_rules[1]

    def _read_rule_lines(self, commit: str) -> Sequence[str]:
        """Read the rules file; returns no lines if it is too large or does not exist."""
        name = f"{commit}:{RULES_FILE}"
        try:
            if int(run_git(self._root, "cat-file", "-s", name)) > LARGEST_RULES_BYTES:
                return []
            return rule_lines(run_git(self._root, "cat-file", "blob", name))
        except GitFailed:
            return []

    def _permalink_template(self) -> str | None:
        try:
            return permalink_template(
                run_git(self._root, "ls-remote", "--get-url").decode(errors="replace")
            )
        except GitFailed:
            return None

    def _paths(self) -> tuple[str, ...]:
        return ("--", self._prefix) if self._prefix else ()

    def _git(self, *arguments: str) -> bytes:
        with self._git_errors():
            return run_git(self._root, *arguments)

    @contextmanager
    def _git_errors(self) -> Iterator[None]:
        """Raise UsageError if git fails inside."""
        try:
            yield
        except GitFailed as error:
            raise UsageError(f"{self._root} can't be read by git: {error}") from error


class _Entry(NamedTuple):
    """One line of ``git ls-tree -l``; ``uri`` is None if the name can't be a uri."""

    path: bytes
    uri: str | None
    mode: bytes
    blob: str
    size_bytes: bytes

    def skip(self, sizes: SizeLimits, paths: TrackedPaths) -> tuple[str, Skip | None]:
        """Path of the entry or of a skipped folder around it, and the reason, if known unread."""
        if self.uri is None:
            return to_shown(self.path), self._skip(sizes.text_bytes) or Skip.NAME
        return paths.skip(self.uri) or (self.uri, self._skip(sizes.of(self.uri)))

    def _skip(self, max_bytes: int) -> Skip | None:
        if self.mode == _SYMLINK_MODE:
            return Skip.SYMLINK
        if self.mode == _SUBMODULE_MODE:
            return Skip.SUBMODULE
        if not self.size_bytes.isdigit():
            return Skip.UNREADABLE
        return Skip.OVERSIZED if int(self.size_bytes) > max_bytes else None


def _is_bare(path: Path) -> bool:
    """True if a directory is a repository without a work tree, such as a mirror."""
    has_layout = all((path / name).exists() for name in ("HEAD", "objects", "refs"))
    if not has_layout or path.resolve().name == ".git":
        return False
    try:
        return run_git(path, "rev-parse", "--is-bare-repository").strip() == b"true"
    except GitFailed:
        return False


def _work_tree(path: Path) -> tuple[Path, str, bool, str]:
    """Root of the work tree, the path of the directory in it, if it is shallow, and HEAD's commit.

    Raises:
        UsageError: there is no commit yet, or git can't read the repository.
    """
    try:
        # one process for all; a commit that does not exist is left out
        facts = ("--show-prefix", "--show-toplevel", "--is-shallow-repository")
        output = _rev_parse(path, *facts, "--revs-only", HEAD)
        *names, is_shallow, commit = output.removesuffix("\n").split("\n")
        if not COMMIT.fullmatch(commit):
            raise UsageError(f"{path} has no commit", "commit first")
        prefix, root = names[0], names[-1]
        if len(names) > 2:  # a name contains a line break
            prefix = _rev_parse(path, "--show-prefix").removesuffix("\n")
            root = _rev_parse(path, "--show-toplevel").removesuffix("\n")
    except GitFailed as error:
        raise UsageError(f"{path} can't be read by git: {error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path!r} has a name that is not UTF-8", "rename it") from error
    return Path(root), prefix, is_shallow == "true", commit


def _rev_parse(path: Path, *arguments: str) -> str:
    return run_git(path, "rev-parse", *arguments).decode()
