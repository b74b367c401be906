"""Watches, git hooks and webhooks that sync a source again."""

from __future__ import annotations

from pathlib import Path

from gateway.sync.followers import follower, mirror_folder
from gateway.sync.hook import hook_line
from gateway.sync.registration import Destination
from runtime.settings import GatewaySettings, Settings
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


def test_a_webhook_follows_its_mirror(tmp_path: Path) -> None:
    """Only the source of the mirror in the project of the webhook is synced by it."""
    hook = {"secret": "s" * 16, "repository": "https://forge.example/docs", "project": "docs"}
    gateway = GatewaySettings.model_validate({"hooks": {"handbook": hook}})
    settings = Settings(home=tmp_path / "home", gateway=gateway)
    location = str(mirror_folder(settings, "handbook").resolve())
    assert follower(settings, "docs", "git", location) == "webhook handbook"
    assert follower(settings, "other", "git", location) is None
    assert follower(settings, "docs", "git", str(tmp_path)) is None
