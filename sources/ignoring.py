"""What is taken of a source: rules of the user, nested as git has them, before the defaults."""

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
    "LARGEST_RULES_BYTES",
    "RULES_FILE",
    "Choice",
    "IgnoreRules",
    "MatchClock",
    "Rules",
    "TrackedPaths",
    "read_rule_lines",
    "rule_lines",
]

RULES_FILE = ".headraceignore"
_GIT_FILE = ".gitignore"
_ALWAYS = frozenset({".git", ".hg", ".svn", ".bzr", ".jj"})
LARGEST_RULES_BYTES = 2**20
_MOST_WILDCARDS = 4
"""Stars in one part of a path, and double stars in a rule: the time of a match grows by this power
of the path's length."""
_LONGEST_MATCHING = timedelta(minutes=2)
_FOLDER_GROUP = "ps_d"
"""Group of pathspec's expressions for the slash after a folder that a rule names."""


class MatchClock:
    """Time that is spent on the rules of one listing: a repository brings its own rules along."""

    def __init__(self, longest: timedelta = _LONGEST_MATCHING) -> None:
        self._left_seconds = longest.total_seconds()

    def spend(self, seconds: float) -> None:
        """Count some.

        Raises:
            UsageError: there is none left.
        """
        self._left_seconds -= seconds
        if self._left_seconds < 0:
            raise UsageError(
                "the ignore rules take too long to match: use fewer of them, with fewer stars"
            )


class Rules:
    """The lines of one rules file; those that make no sense are left out, as git does.

    Raises:
        UsageError: one of them has too many stars.
    """

    def __init__(self, lines: Iterable[str], clock: MatchClock) -> None:
        self._spec = GitIgnoreSpec(pattern for line in lines for pattern in _patterns(line))
        self._any = bool(self._spec)
        self._clock = clock
        self.includes_again = any(pattern.include is False for pattern in self._spec.patterns)
        """Whether there are ``!`` lines."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self._any

    def verdict(self, path: str) -> bool | None:
        """Whether the last rule that matches ignores the path; None where none does.

        Raises:
            UsageError: the rules take too long.
        """
        return self._check(path)[0]

    def names(self, path: str) -> bool:
        """Whether the last rule that matches names the path itself, not only a folder above it.

        Raises:
            UsageError: the rules take too long.
        """
        index = self._check(path)[1]
        if index is None:
            return False
        result = self._spec.patterns[index].match_file(path)
        found = result.match if result is not None else None
        if found is None or _FOLDER_GROUP not in found.re.groupindex:
            return True
        return found.end(_FOLDER_GROUP) in (-1, len(path))

    def _check(self, path: str) -> tuple[bool | None, int | None]:
        began_at = perf_counter()
        result = self._spec.check_file(path)
        self._clock.spend(perf_counter() - began_at)
        return result.include, result.index


def _patterns(line: str) -> Sequence[Any]:
    _check(line)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about brackets in brackets
        try:
            return list(GitIgnoreSpec.from_lines([line]).patterns)
        except (ValueError, re.error):
            return ()


def _check(line: str) -> None:
    parts = re.sub(r"\*{2,}", "**", line).split("/")
    stars = [part.count("*") for part in parts if part != "**"]
    if max([*stars, parts.count("**")]) > _MOST_WILDCARDS:
        raise UsageError(
            f"the ignore rule {line[:80]!r} has over {_MOST_WILDCARDS} stars in one part of a path "
            "(or double stars): write it with fewer"
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user chooses of a source.

    Attributes:
        include: patterns in the form of ``.gitignore`` for what is taken although a rule or a
            default leaves it out. One that names a folder lifts the rule for the folder; files in
            it which have a reason of their own need a pattern that names them.
        homes: directories of Headrace itself, which are left out.
    """

    include: tuple[str, ...] = ()
    homes: tuple[Path, ...] = ()

    def homes_below(self, root: Path) -> frozenset[str]:
        """Paths of the homes relative to a resolved ``root``.

        Raises:
            UsageError: the root is in a home, or is one.
        """
        found = set()
        for home in (home.resolve() for home in self.homes):
            if root.is_relative_to(home):
                raise UsageError(f"{root} belongs to Headrace itself: name another directory")
            if home.is_relative_to(root):
                found.add(home.relative_to(root).as_posix())
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Listing:
    """What holds for all rules of one listing."""

    include: Rules | None
    homes: frozenset[str]
    clock: MatchClock

    @classmethod
    def of(cls, choice: Choice, root: Path | None) -> _Listing:
        clock = MatchClock()
        homes = choice.homes_below(root) if root is not None else frozenset[str]()
        return cls(Rules(choice.include, clock) or None, homes, clock)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """Rules in force in one directory; paths are relative to the root of the source.

    Its own ``.headraceignore`` goes before its ``.gitignore``, both before those further up, and
    the patterns of a ``Choice`` before all of them.
    """

    own: Rules | None = None
    git: Rules | None = None
    base: str = ""
    above: IgnoreRules | None = None
    listing: _Listing = field(default_factory=lambda: _Listing.of(Choice(), None))

    @classmethod
    def at(cls, root: Path, choice: Choice, lines: Iterable[str] = ()) -> IgnoreRules:
        """Those at a resolved root; ``lines``: of a ``.headraceignore`` that is no file there.

        Raises:
            UsageError: a pattern has too many stars, or the root belongs to Headrace itself.
        """
        listing = _Listing.of(choice, root)
        return cls(own=Rules(lines, listing.clock) or None, listing=listing)

    def below(self, directory: Path, relative: str, names: Container[str]) -> IgnoreRules:
        """Rules of a directory inside: its path from the root, and the names in it."""
        own, git = (
            Rules(read_rule_lines(directory / name), self.listing.clock) or None
            if name in names
            else None
            for name in (RULES_FILE, _GIT_FILE)
        )
        if own is None and git is None:
            return self
        base = f"{relative}/" if relative else ""
        return IgnoreRules(own, git, base, self, self.listing)

    def skip_folder(self, path: str, beside: Container[str] | None = None) -> Skip | None:
        """Why a folder is left out; ``beside``: see ``folder_reason``."""
        if path.rpartition("/")[2] in _ALWAYS:
            return Skip.IGNORED
        reason = Skip.HOME if path in self.listing.homes else folder_reason(path, beside)
        return self._judge(f"{path}/", reason)

    def skip_marked(self, path: str, names: Container[str]) -> Skip | None:
        """Why a folder is left out, by the names in it."""
        reason = marked_reason(names)
        return reason if reason is not None and not self.includes(f"{path}/") else None

    def skip_file(self, path: str) -> Skip | None:
        """Why a file is left out, by its name."""
        return self._judge(path, file_reason(path))

    def includes(self, path: str) -> bool:
        """Whether a pattern of the choice, or a ``!`` line, names the path itself."""
        include = self.listing.include
        if include is not None and include.verdict(path) and include.names(path):
            return True
        rules: IgnoreRules | None = self
        while rules is not None:
            own = rules.own if rules.own and rules.own.includes_again else None
            relative = path.removeprefix(rules.base)
            verdict = own.verdict(relative) if own else None
            if own and verdict is not None:
                return not verdict and own.names(relative)
            rules = rules.above
        return False

    def ignores(self, path: str) -> bool:
        """Whether the nearest rule that matches ignores the path; a folder ends in a slash."""
        include = self.listing.include
        if include is not None and include.verdict(path):
            return False
        rules: IgnoreRules | None = self
        while rules is not None:
            relative = path.removeprefix(rules.base)
            for lines in (rules.own, rules.git):
                verdict = None if lines is None else lines.verdict(relative)
                if verdict is not None:
                    return verdict
            rules = rules.above
        return False

    def _judge(self, path: str, reason: Skip | None) -> Skip | None:
        if reason is not None and not self.includes(path):
            return reason
        return Skip.IGNORED if self.ignores(path) else None


class TrackedPaths:
    """The same rules for a list of paths, as git has it, in place of a walk.

    Args:
        rules: at the root.
        paths: all of them, files only.
        prefix: path of the folder that is synced, ``""`` or ending in a slash. It was named, so
            it is not left out by its own name.
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
        self._left_out: dict[str, tuple[str, Skip] | None] = dict.fromkeys(["", *named])

    def skip(self, path: str) -> tuple[str, Skip] | None:
        """What is left out, this file or a folder that it is in (with a slash), and why."""
        above = self._folder(path.rpartition("/")[0])
        if above is not None:
            return above
        reason = self._rules.skip_file(path)
        return (path, reason) if reason is not None else None

    def _folder(self, path: str) -> tuple[str, Skip] | None:
        unknown = []
        while path not in self._left_out:
            unknown.append(path)
            path = path.rpartition("/")[0]
        found = self._left_out[path]
        for folder in reversed(unknown):
            found = self._left_out[folder] = found or self._judge(folder)
        return found

    def _judge(self, folder: str) -> tuple[str, Skip] | None:
        names = self._marked.get(folder, ())
        reason = self._rules.skip_folder(folder) or self._rules.skip_marked(folder, names)
        return (f"{folder}/", reason) if reason is not None else None


def read_rule_lines(path: Path) -> list[str]:
    """Lines of a rules file; none where there is no regular, readable one, or it is too large."""
    try:
        return rule_lines(read_regular(path, LARGEST_RULES_BYTES + 1))
    except OSError:
        return []


def rule_lines(content: bytes) -> list[str]:
    """Lines of the content of a rules file; none where it is too large."""
    if len(content) > LARGEST_RULES_BYTES:
        return []
    return content.decode(errors="surrogateescape").splitlines()
