"""Watches and git hooks that sync a source again."""

from __future__ import annotations

from pathlib import Path

from gateway.sync.followers import follower
from gateway.sync.hook import hook_line
from gateway.sync.sync import Destination
from runtime.settings import Settings
from sources.git_hooks import GitHooks
from tests.support.repositories import create_repository


def test_hooks_follow_the_project_of_their_install(tmp_path: Path) -> None:
    """A project whose name only begins with that of the hooks is not synced by them."""
    origin = create_repository(tmp_path / "origin", {"a.md": "1"})
    origin.commit()
    settings, location = Settings(home=tmp_path), str(origin.path)
    line = hook_line(settings, location, Destination("docs-2"), [])
    GitHooks(origin.path / ".git" / "hooks").install(line)
    assert follower(settings, "docs-2", "git", location) == "git hooks"
    assert follower(settings, "docs", "git", location) is None
