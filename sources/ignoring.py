"""Ignore rules of a directory, nested as git has them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path, PurePosixPath
from time import perf_counter
from typing import Any

from pathspec import GitIgnoreSpec

from runtime.errors import UsageError
from sources.files import read_regular

__all__ = ["LARGEST_RULES_BYTES", "IgnoreRules", "MatchClock", "Rules"]

_FILES = (".gitignore", ".headraceignore")
_ALWAYS = frozenset({".git"})
LARGEST_RULES_BYTES = 2**20
_MOST_WILDCARDS = 4
"""Stars in one part of a path, and double stars in a rule: the time of a match grows by this power
of the path's length."""
_LONGEST_MATCHING = timedelta(minutes=2)


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
        self._clock = clock

    def verdict(self, path: str) -> bool | None:
        """Whether the last rule that matches ignores the path; None where none does.

        Raises:
            UsageError: the rules take too long.
        """
        began_at = perf_counter()
        verdict = self._spec.check_file(path).include
        self._clock.spend(perf_counter() - began_at)
        return verdict


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
class IgnoreRules:
    """Rules in force in one directory.

    Its own ``.headraceignore`` goes before its ``.gitignore``, both before those further up.
    """

    rules: Rules | None = None
    base: PurePosixPath = field(default_factory=PurePosixPath)
    above: IgnoreRules | None = None
    clock: MatchClock = field(default_factory=MatchClock)

    def below(self, directory: Path, relative: PurePosixPath) -> IgnoreRules:
        """Rules of a directory inside; ``relative`` is its path from the root."""
        lines = [line for name in _FILES for line in _lines(directory / name)]
        if not lines:
            return self
        return IgnoreRules(Rules(lines, self.clock), relative, self, self.clock)

    def ignores(self, relative: PurePosixPath, is_directory: bool) -> bool:
        """Whether the nearest rule that matches ignores the path."""
        if relative.name in _ALWAYS:
            return True
        rules: IgnoreRules | None = self
        while rules is not None:
            verdict = rules._verdict(relative, is_directory)
            if verdict is not None:
                return verdict
            rules = rules.above
        return False

    def _verdict(self, relative: PurePosixPath, is_directory: bool) -> bool | None:
        if self.rules is None:
            return None
        path = relative.relative_to(self.base).as_posix() + ("/" if is_directory else "")
        return self.rules.verdict(path)


def _lines(path: Path) -> list[str]:
    """Lines of a rules file; none where there is no regular, readable one."""
    try:
        raw = read_regular(path, LARGEST_RULES_BYTES + 1)
    except OSError:
        return []
    if len(raw) > LARGEST_RULES_BYTES:
        return []
    return raw.decode(errors="surrogateescape").splitlines()
