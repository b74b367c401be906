"""Watches, git hooks and webhooks of this machine that sync a source again."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

from runtime.embedded.server import DirectoryLock
from runtime.errors import UsageError
from runtime.settings import Settings
from sources.git import open_git
from sources.git_hooks import GitHooks

__all__ = ["follower", "hook_arguments", "mirror_folder", "watch_lock"]

_NAME_CHARACTERS = 16
_MIRRORS = "mirrors"


def watch_lock(settings: Settings, project: str, location: str) -> DirectoryLock:
    """Lock that a watch holds on a source while it follows it.

    A second watch of the same source does without: both may run, because a sync has a lease.
    """
    name = hashlib.sha256(f"{project} {location}".encode()).hexdigest()[:_NAME_CHARACTERS]
    return DirectoryLock(settings.home_directory, f"watch-{name}.lock")


def hook_arguments(project: str, location: str) -> list[str]:
    """First arguments of the command that the hooks of a repository start."""
    return ["hook", "run", location, f"--project={project}"]


def mirror_folder(settings: Settings, name: str) -> Path:
    """Folder of the mirror of a webhook's repository."""
    return settings.home_directory / _MIRRORS / f"{name}.git"


def follower(settings: Settings, project: str, kind: str, location: str) -> str | None:
    """Describe what syncs a source again: ``watch (process 1)``, ``webhook NAME`` or ``git hooks``.

    Returns None if nothing does with the home of the settings. Another machine still may.
    """
    owner = watch_lock(settings, project, location).owner()
    if owner is not None:
        return f"watch (process {owner})"
    for name, hook in settings.gateway.hooks.items():
        if hook.project == project and location == str(mirror_folder(settings, name).resolve()):
            return f"webhook {name}"
    return "git hooks" if kind == "git" and _has_hooks(project, location) else None


def _has_hooks(project: str, location: str) -> bool:
    try:
        repository = open_git(Path(location))
        if repository is None:
            return False
        hooks = GitHooks(repository.hooks_directory())
        # the space ends the name of the project
        return hooks.start(f"{shlex.join(hook_arguments(project, location))} ")
    except UsageError:
        return False
