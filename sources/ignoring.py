"""Ignore rules of a directory, nested as git has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec

__all__ = ["IgnoreRules"]

_FILES = (".gitignore", ".headraceignore")
_ALWAYS = frozenset({".git"})
_LARGEST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """Rules in force in one directory.

    Its own ``.headraceignore`` goes before its ``.gitignore``, both before those further up.
    """

    spec: GitIgnoreSpec | None = None
    base: PurePosixPath = field(default_factory=PurePosixPath)
    above: IgnoreRules | None = None

    def below(self, directory: Path, relative: PurePosixPath) -> IgnoreRules:
        """Rules of a directory inside; ``relative`` is its path from the root."""
        lines = [line for name in _FILES for line in _lines(directory / name)]
        if not lines:
            return self
        return IgnoreRules(GitIgnoreSpec.from_lines(lines), relative, self)

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
        if self.spec is None:
            return None
        path = relative.relative_to(self.base).as_posix() + ("/" if is_directory else "")
        return self.spec.check_file(path).include


def _lines(path: Path) -> list[str]:
    """Lines of a rules file; none where there is no regular, readable one."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
        return []
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
