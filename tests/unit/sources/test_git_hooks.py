"""Lines in the hooks of a repository, beside those of others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from runtime.errors import UsageError
from sources.git_hooks import HOOKS, GitHooks

LINES = "echo synced"
OTHER = b"#!/usr/bin/env bash\n\nread line\necho other $1 $line\nexit 3\n"


@pytest.fixture
def hooks(tmp_path: Path) -> GitHooks:
    return GitHooks(tmp_path / "hooks")


def write(path: Path, script: bytes, mode: int = 0o755) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(script)
    path.chmod(mode)


def test_other_hooks_run_as_before_and_are_restored(hooks: GitHooks, tmp_path: Path) -> None:
    """Ours come first; arguments, input and exit code of a hook stay, and removal restores it."""
    other = tmp_path / "hooks" / "post-rewrite"
    write(other, OTHER, 0o750)
    sample = tmp_path / "hooks" / "post-commit.sample"
    write(sample, OTHER)
    hooks.install("false")
    assert not hooks.start(LINES)
    hooks.install(LINES)
    assert hooks.start(LINES)
    result = subprocess.run(
        [other, "amend"], input="old new", capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.returncode) == ("synced\nother amend old new\n", 3)
    for name in HOOKS[:-1]:
        result = subprocess.run(
            [tmp_path / "hooks" / name], capture_output=True, text=True, check=True
        )
        assert result.stdout == "synced\n"
    assert hooks.remove()
    assert other.read_bytes() == OTHER
    assert other.stat().st_mode & 0o777 == 0o750
    assert {path.name for path in other.parent.iterdir()} == {other.name, sample.name}
    assert not hooks.remove()


def test_lines_that_were_added_later_stay(hooks: GitHooks, tmp_path: Path) -> None:
    """A hook of ours to which somebody added a line keeps that line."""
    hooks.install(LINES)
    path = tmp_path / "hooks" / "post-commit"
    path.write_bytes(path.read_bytes() + b"echo more\n")
    hooks.remove()
    assert path.read_bytes().endswith(b"echo more\n")
    assert LINES.encode() not in path.read_bytes()
    assert not (tmp_path / "hooks" / "post-merge").exists()


def test_a_hook_that_can_not_be_changed_is_refused(hooks: GitHooks, tmp_path: Path) -> None:
    """The error gives the line to add by hand, and no hook is changed."""
    folder = tmp_path / "hooks"
    target = tmp_path / "target"
    write(target, OTHER)
    path = folder / "post-merge"
    for script, mode, message in (
        (b"#!/usr/bin/env python3\nprint()\n", 0o755, "is not a shell script"),
        (b"\x7fELF", 0o755, "is not a shell script"),
        (OTHER, 0o644, "is not executable"),
    ):
        write(path, script, mode)
        with pytest.raises(UsageError, match=message):
            hooks.install(LINES)
        assert [*folder.iterdir()] == [path]
        assert path.read_bytes() == script
    path.unlink()
    path.symlink_to(target)
    with pytest.raises(UsageError, match=f"symbolic link; add this to it yourself: {LINES}"):
        hooks.install(LINES)
    assert target.read_bytes() == OTHER
