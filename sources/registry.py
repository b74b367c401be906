"""Which kind of source a path is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from runtime.errors import UsageError
from sources.directory import open_directory
from sources.git import open_git
from sources.ignoring import Choice
from sources.types import Source

__all__ = ["KINDS", "open_source"]

KINDS: Mapping[str, Callable[[Path, Choice], Source | None]] = {
    "git": open_git,
    "directory": open_directory,
}
"""Kinds in the order in which they are asked; the first that recognises a path has it."""


def open_source(path: Path, include: Iterable[str] = (), homes: Iterable[Path] = ()) -> Source:
    """The source at a path.

    Args:
        path: of a directory.
        include: patterns, in the form of ``.gitignore``, for what is taken all the same although
            it would be left out.
        homes: directories of Headrace itself, which are left out.

    Raises:
        UsageError: there is no such directory, or it can't be read.
    """
    path = path.expanduser()
    if not path.exists():
        raise UsageError(f"{path} doesn't exist: name a git repository or a directory")
    if not path.is_dir():
        raise UsageError(f"{path} is not a directory: name a git repository or a directory")
    choice = Choice(tuple(include), tuple(homes))
    for recognise in KINDS.values():
        source = recognise(path, choice)
        if source is not None:
            return source
    raise UsageError(f"{path} is no source of a known kind: {', '.join(KINDS)}")
