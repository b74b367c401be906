"""Git repositories for tests."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Repository", "create_repository"]

_IDENTITY = {
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.org",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


@dataclass(frozen=True)
class Repository:
    """Work tree of a repository."""

    path: Path

    def git(self, *arguments: str) -> str:
        """Output of a git command in the work tree."""
        result = subprocess.run(
            ["git", "-C", str(self.path), *arguments],
            env=os.environ | _IDENTITY,
            capture_output=True,
            check=True,
        )
        return result.stdout.decode(errors="replace").strip()

    def write(self, files: dict[str, str | bytes]) -> None:
        """Write files into the work tree, without committing."""
        write_files(self.path, files)

    def commit(self, files: dict[str, str | bytes] | None = None) -> str:
        """Commit everything in the work tree; returns the commit id."""
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "a commit")
        return self.git("rev-parse", "HEAD")


def write_files(root: Path, files: dict[str, str | bytes]) -> None:
    """Write files below a directory."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def create_repository(path: Path, files: dict[str, str | bytes] | None = None) -> Repository:
    """Create a repository, with a first commit if there are files."""
    path.mkdir(parents=True, exist_ok=True)
    repository = Repository(path)
    repository.git("init", "--quiet", "--initial-branch=main")
    if files is not None:
        repository.commit(files)
    return repository
