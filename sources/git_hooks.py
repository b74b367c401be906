"""Hooks of a repository that start a command in the background after each commit."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from runtime.errors import UsageError

__all__ = ["HOOKS", "GitHooks"]

HOOKS = ("post-checkout", "post-commit", "post-merge", "post-rewrite")
"""Hooks that git runs after HEAD or its branch has changed."""

_BEGIN = b"# >>> headrace: `headrace hook remove` removes these lines"
_END = b"# <<< headrace"
_OURS = re.compile(re.escape(_BEGIN) + rb"\n.*?" + re.escape(_END) + rb"\n", re.DOTALL)
_CREATED = b"#!/bin/sh\n# Created by `headrace hook install`.\n"
_SHEBANG = re.compile(rb"#![^\n]*?[/ ](?:ba|da|k|z)?sh(?: [^\n]*)?\n")
_MODE = 0o755


class GitHooks:
    """Hooks in a directory. Lines of ours come first in each, before whatever else it does.

    Args:
        directory: directory of the hooks, as git uses it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def start(self, command: str) -> bool:
        """True if each hook has lines of ours that contain a command.

        Raises:
            UsageError: a hook can't be read.
        """
        scripts = [_read(self._directory / name) or b"" for name in HOOKS]
        lines = [_OURS.search(script) for script in scripts]
        return all(match is not None and command.encode() in match[0] for match in lines)

    def install(self, lines: str) -> None:
        """Put lines of a shell script into each hook, in place of earlier ones of ours.

        Raises:
            UsageError: a hook can't be changed, or is not a script to which lines can be added.
        """
        block = b"\n".join([_BEGIN, lines.encode(), _END, b""])
        scripts = {name: self._with(name, block, lines) for name in HOOKS}
        self._replace(scripts)

    def remove(self) -> bool:
        """Remove our lines, and the hooks that have no other; returns False if there were none.

        Raises:
            UsageError: a hook can't be changed.
        """
        scripts = {}
        for name in HOOKS:
            before = _read(self._directory / name)
            after = None if before is None else _OURS.sub(b"", before, count=1)
            if after != before:
                scripts[name] = None if after == _CREATED else after
        self._replace(scripts)
        return bool(scripts)

    def _with(self, name: str, block: bytes, lines: str) -> bytes:
        """Script of a hook with our lines after its first line."""
        path = self._directory / name
        before = _read(path)
        if before is None:
            return _CREATED + block
        remedy = f"add this to it yourself: {lines}"
        if path.is_symlink():
            raise UsageError(f"{path} is a symbolic link", remedy)
        shebang = _SHEBANG.match(before)
        if shebang is None:
            raise UsageError(f"{path} is not a shell script", remedy)
        if not os.access(path, os.X_OK):
            raise UsageError(
                f"{path} is not executable, so git does not run it", f"chmod +x {path}"
            )
        if _OURS.search(before):
            return _OURS.sub(lambda _: block, before, count=1)
        return before[: shebang.end()] + block + before[shebang.end() :]

    def _replace(self, scripts: Mapping[str, bytes | None]) -> None:
        """Replace or delete hooks; each change is atomic, because git may run a hook meanwhile."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            for name, script in scripts.items():
                path = self._directory / name
                if script is None:
                    path.unlink()
                else:
                    _write(path, script)
        except OSError as error:
            raise UsageError(
                f"the hooks in {self._directory} can't be changed: {error.strerror}",
                "make the directory writable",
            ) from error


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}", "make it readable") from error


def _write(path: Path, script: bytes) -> None:
    """Replace a script; its mode stays, or is that of a program."""
    mode = path.stat().st_mode if path.exists() else _MODE
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".headrace-", delete=False) as draft:
        draft.write(script)
    Path(draft.name).chmod(mode & 0o7777)
    Path(draft.name).replace(path)
