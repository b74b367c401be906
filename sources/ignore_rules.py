"""Choice of files in a source: rules of the user, nested as in git, then the defaults."""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

from pathspec import GitIgnoreSpec

from runtime.errors import UsageError
from sources.defaults import file_reason, folder_reason, marked_reason, markers
from sources.files import read_regular
from sources.types import Skip

__all__ = [
    "GIT_RULES_FILE",
    "LARGEST_RULES_BYTES",
    "RULES_FILE",
    "Choice",
    "IgnoreRules",
    "MatchTimeLimit",
    "Rules",
    "TrackedPaths",
    "read_rule_lines",
    "rule_lines",
]

RULES_FILE = ".headraceignore"
GIT_RULES_FILE = ".gitignore"
_ALWAYS = frozenset({".git", ".hg", ".svn", ".bzr", ".jj"})
LARGEST_RULES_BYTES = 2**20
_MOST_WILDCARDS = 4
"""Most stars in one part of a path, and most double stars in a rule: the time of a match grows with
this power of the path's length."""
_LONGEST_MATCHING = timedelta(minutes=2)
_FOLDER_GROUP = "ps_d"
"""Group in pathspec's expressions for the slash after a folder that a rule names."""


class MatchTimeLimit:
    """Time limit for the rules of one listing, because a repository supplies its own rules."""

    def __init__(self, longest: timedelta = _LONGEST_MATCHING) -> None:
        self._remaining_seconds = longest.total_seconds()

    def spend(self, seconds: float) -> None:
        """Count time that was spent.

        Raises:
            UsageError: no time is left.
        """
        self._remaining_seconds -= seconds
        if self._remaining_seconds < 0:
            raise UsageError("the ignore rules take too long to match", "use fewer rules and stars")


class Rules:
    """Lines of one rules file; invalid lines are left out, as in git.

    Raises:
        UsageError: a line has too many stars.
    """

    def __init__(self, lines: Iterable[str], time_limit: MatchTimeLimit) -> None:
        self._spec = GitIgnoreSpec(pattern for line in lines for pattern in _patterns(line))
        self._any = bool(self._spec)
        self._time_limit = time_limit
        self.has_negations = any(pattern.include is False for pattern in self._spec.patterns)
        """True if there are ``!`` lines."""

    def __bool__(self) -> bool:
        """True if there are any rules."""
        return self._any

    def verdict(self, path: str) -> bool | None:
        """Return whether the last matching rule ignores the path. Returns None if no rule matches.

        Raises:
            UsageError: the rules take too long.
        """
        return self._check(path)[0]

    def names(self, path: str) -> bool:
        """True if the last matching rule names the path itself, not only a folder above it.

        Raises:
            UsageError: the rules take too long.
        """
        index = self._check(path)[1]
        if index is None:
            return False
        result = self._spec.patterns[index].match_file(path)
        match = result.match if result is not None else None
        if match is None or _FOLDER_GROUP not in match.re.groupindex:
            return True
        return match.end(_FOLDER_GROUP) in (-1, len(path))

    def _check(self, path: str) -> tuple[bool | None, int | None]:
        began_at = perf_counter()
        result = self._spec.check_file(path)
        self._time_limit.spend(perf_counter() - began_at)
        return result.include, result.index


def _patterns(line: str) -> Sequence[Any]:
    _check(line)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about nested brackets
        try:
            return list(GitIgnoreSpec.from_lines([line]).patterns)
        except (ValueError, re.error):
            return ()


def _check(line: str) -> None:
    parts = re.sub(r"\*{2,}", "**", line).split("/")
    stars = [part.count("*") for part in parts if part != "**"]
    if max([*stars, parts.count("**")]) > _MOST_WILDCARDS:
        raise UsageError(
            f"the ignore rule {line[:80]!r} has more than {_MOST_WILDCARDS} stars in one part of "
            "a path (or double stars)",
            "rewrite it with fewer",
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """Options of the user about the files of a source.

    Attributes:
        include: patterns in the format of ``.gitignore`` for files that are included although a
            rule or a default leaves them out. A pattern that names a folder lifts only the rule
            for the folder; files in it that are left out for another reason need their own pattern.
        homes: homes of Headrace itself, which are left out.
    """

    include: tuple[str, ...] = ()
    homes: tuple[Path, ...] = ()

    def homes_below(self, root: Path) -> frozenset[str]:
        """Paths of the homes relative to a resolved ``root``.

        Raises:
            UsageError: the root is a home, or inside one.
        """
        paths = set()
        for home in (home.resolve() for home in self.homes):
            if root.is_relative_to(home):
                raise UsageError(f"{root} belongs to Headrace itself", "name another directory")
            if home.is_relative_to(root):
                paths.add(home.relative_to(root).as_posix())
        return frozenset(paths)


@dataclass(frozen=True, slots=True)
class _Listing:
    """Options shared by all rules of one listing."""

    include: Rules | None
    homes: frozenset[str]
    time_limit: MatchTimeLimit

    @classmethod
    def of(cls, choice: Choice, root: Path | None) -> _Listing:
        time_limit = MatchTimeLimit()
        homes = choice.homes_below(root) if root is not None else frozenset[str]()
        return cls(Rules(choice.include, time_limit) or None, homes, time_limit)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """Rules that apply in one directory; paths are relative to the root of the source.

    Its own ``.headraceignore`` takes precedence over its ``.gitignore``, both over the files of
    parent directories, and the patterns of a ``Choice`` over all of them.
    """

    headrace: Rules | None = None
    git: Rules | None = None
    base: str = ""
    parent: IgnoreRules | None = None
    listing: _Listing = field(default_factory=lambda: _Listing.of(Choice(), None))

    @classmethod
    def at(cls, root: Path, choice: Choice, lines: Iterable[str] = ()) -> IgnoreRules:
        """Rules at a resolved root; ``lines`` are those of a ``.headraceignore`` not on disk there.

        Raises:
            UsageError: a pattern has too many stars, or the root belongs to Headrace itself.
        """
        listing = _Listing.of(choice, root)
        return cls(headrace=Rules(lines, listing.time_limit) or None, listing=listing)

    def below(self, directory: Path, relative: str, names: Container[str]) -> IgnoreRules:
        """Rules of a subdirectory, given its path from the root and the names in it."""
        headrace, git = (
            Rules(read_rule_lines(directory / name), self.listing.time_limit) or None
            if name in names
            else None
            for name in (RULES_FILE, GIT_RULES_FILE)
        )
        if headrace is None and git is None:
            return self
        base = f"{relative}/" if relative else ""
        return IgnoreRules(headrace, git, base, self, self.listing)

    def skip_folder(self, path: str, siblings: Container[str] | None = None) -> Skip | None:
        """Reason to leave out a folder, or None; for ``siblings`` see ``folder_reason``."""
        if path.rpartition("/")[2] in _ALWAYS:
            return Skip.IGNORED
        reason = Skip.HOME if path in self.listing.homes else folder_reason(path, siblings)
        return self._skip_reason(f"{path}/", reason)

    def skip_marked(self, path: str, names: Container[str]) -> Skip | None:
        """Reason to leave out a folder by the names in it, or None."""
        reason = marked_reason(names)
        return reason if reason is not None and not self.includes(f"{path}/") else None

    def skip_file(self, path: str) -> Skip | None:
        """Reason to leave out a file by its name, or None."""
        return self._skip_reason(path, file_reason(path))

    def includes(self, path: str) -> bool:
        """True if a pattern of the choice, or a ``!`` line, names the path itself."""
        include = self.listing.include
        if include is not None and include.verdict(path) and include.names(path):
            return True
        rules: IgnoreRules | None = self
        while rules is not None:
            headrace = rules.headrace if rules.headrace and rules.headrace.has_negations else None
            relative = path.removeprefix(rules.base)
            verdict = headrace.verdict(relative) if headrace else None
            if headrace and verdict is not None:
                return not verdict and headrace.names(relative)
            rules = rules.parent
        return False

    def ignores(self, path: str) -> bool:
        """True if the nearest matching rule ignores the path; a folder's path ends in a slash."""
        include = self.listing.include
        if include is not None and include.verdict(path):
            return False
        rules: IgnoreRules | None = self
        while rules is not None:
            relative = path.removeprefix(rules.base)
            for lines in (rules.headrace, rules.git):
                verdict = None if lines is None else lines.verdict(relative)
                if verdict is not None:
                    return verdict
            rules = rules.parent
        return False

    def _skip_reason(self, path: str, reason: Skip | None) -> Skip | None:
        if reason is not None and not self.includes(path):
            return reason
        return Skip.IGNORED if self.ignores(path) else None


class TrackedPaths:
    """The same rules applied to a list of paths from git, instead of a walk.

    Args:
        rules: rules at the root.
        paths: paths of all files.
        prefix: path of the synced folder, ``""`` or ending in a slash. It is not left out for its
            name, because the user named it.
    """

    def __init__(self, rules: IgnoreRules, paths: Iterable[str], prefix: str = "") -> None:
        self._rules = rules
        self._marked: dict[str, set[str]] = {}
        names = markers()
        for path in paths:
            folder, _, name = path.rpartition("/")
            if name in names:
                self._marked.setdefault(folder, set()).add(name)
        parts = prefix.rstrip("/").split("/")
        named = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        self._skipped: dict[str, tuple[str, Skip] | None] = dict.fromkeys(["", *named])

    def skip(self, path: str) -> tuple[str, Skip] | None:
        """Path that is left out, the file or a folder around it (with a slash), and the reason."""
        parent = self._folder(path.rpartition("/")[0])
        if parent is not None:
            return parent
        reason = self._rules.skip_file(path)
        return (path, reason) if reason is not None else None

    def _folder(self, path: str) -> tuple[str, Skip] | None:
        unknown = []
        while path not in self._skipped:
            unknown.append(path)
            path = path.rpartition("/")[0]
        skipped = self._skipped[path]
        for folder in reversed(unknown):
            skipped = self._skipped[folder] = skipped or self._skip_reason(folder)
        return skipped

    def _skip_reason(self, folder: str) -> tuple[str, Skip] | None:
        names = self._marked.get(folder, ())
        reason = self._rules.skip_folder(folder) or self._rules.skip_marked(folder, names)
        return (f"{folder}/", reason) if reason is not None else None


def read_rule_lines(path: Path) -> list[str]:
    """Lines of a rules file; empty if it is not a regular, readable file, or is too large."""
    try:
        return rule_lines(read_regular(path, LARGEST_RULES_BYTES + 1))
    except OSError:
        return []


def rule_lines(content: bytes) -> list[str]:
    """Lines in the content of a rules file; empty if it is too large."""
    if len(content) > LARGEST_RULES_BYTES:
        return []
    return content.decode(errors="surrogateescape").splitlines()
