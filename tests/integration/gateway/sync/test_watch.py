"""Watches of real files, by the operating system's notifications and by comparison."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Set
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.sync import watch
from gateway.sync.report import SyncReport
from gateway.sync.watch import Watcher, keep_in_step
from runtime.errors import Unavailable, UsageError
from runtime.intervals import Backoff
from sources import WatchableSource, open_source
from tests.support.forking import ROOT
from tests.support.repositories import create_repository, write_files
from tests.support.waiting import eventually, within

FILES = 5_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Empty directory, by the path that a source gives it."""
    path = tmp_path.resolve() / "root"
    path.mkdir()
    return path


def watcher(path: Path, *, worktree: bool = False, poll: bool = False) -> Watcher:
    source = open_source(path, worktree=worktree)
    assert isinstance(source, WatchableSource)
    return Watcher(source, poll=poll, note=list[str]().append)


async def changed(watcher: Watcher, root: Path, *expected: str) -> set[str]:
    """Paths of the next batches, from the root, until all that are expected are among them.

    A machine with other work may pause between two changes, which are then in two batches.
    """
    names = set[str]()
    async with within(30):
        while not names.issuperset(expected):
            names |= {str(Path(path).relative_to(root)) for path in await watcher.batch()}
    return names


@pytest.mark.parametrize("poll", [False, True], ids=["notified", "polled"])
async def test_a_batch_has_every_change_but_noise(
    root: Path, poll: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New, edited, moved and gone files count, also in new folders; ignored files do not."""
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.1)
    write_files(root, {".gitignore": "*.log\n", "a.md": "a", "b.md": "b", "docs/c.md": "c"})
    async with watcher(root, poll=poll) as watching:
        write_files(root, {"noise.log": "x", ".git/index": "x", "a.md": "edited"})
        assert await changed(watching, root, "a.md") == {"a.md"}
        (root / "b.md").rename(root / "moved.md")
        (root / "docs" / "c.md").unlink()
        moved = ("b.md", "moved.md", "docs/c.md")
        assert await changed(watching, root, *moved) == {*moved}
        write_files(root, {"new/deep/d.md": "d"})
        await changed(watching, root, "new")
        write_files(root, {"new/deep/d.md": "edited", "new/noise.log": "x"})
        names = await changed(watching, root, "new/deep/d.md")
        assert names - {"new", "new/deep"} == {"new/deep/d.md"}, "the folders may be in it too"
        write_files(root, {".gitignore": "*.log\nnew/\n"})
        assert await changed(watching, root, ".gitignore") == {".gitignore"}
        write_files(root, {"new/deep/d.md": "ignored", "a.md": "edited again"})
        assert await changed(watching, root, "a.md") == {"a.md"}
        shutil.rmtree(root)
        with pytest.raises(UsageError, match="can't be read"):
            await changed(watching, root, "never")


async def test_many_changes_are_one_batch_and_steady_changes_do_not_delay_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 files are one batch; a file that is written all the time is in one before it ends."""
    async with watcher(root) as watching:
        with monkeypatch.context() as patch:
            # a machine with other work may pause for longer than 300 ms between two changes
            patch.setattr(watch, "_QUIET_SECONDS", 1.0)
            patch.setattr(watch, "_REPEATED_SECONDS", 20.0)
            patch.setattr(watch, "_LONGEST_SECONDS", 20.0)
            write_files(root, {f"{number}.md": "text" for number in range(FILES)})
            async with within(30):
                paths = await watching.batch()
        assert paths == {str(root / f"{number}.md") for number in range(FILES)}

        async def write_on() -> None:
            for number in range(1_000_000):
                (root / "steady.md").write_text(str(number))
                await asyncio.sleep(0.1)

        writing = asyncio.create_task(write_on())
        assert await changed(watching, root, "steady.md") == {"steady.md"}
        assert not writing.done()
        writing.cancel()


async def test_a_repository_is_watched_for_commits_or_for_saved_files(root: Path) -> None:
    """Only commits and switches of branches count, or with a work tree tracked and new files."""
    repository = create_repository(
        root, {".gitignore": "*.log\nbuilt/\n", "a.md": "a", "docs/b.md": "b"}
    )
    repository.write({"built/tracked.md": "t", "built/new/ignored.md": "i"})
    repository.git("add", "--force", "built/tracked.md")
    repository.commit()
    async with watcher(root) as commits, watcher(root, worktree=True) as saved:
        repository.write({"docs/b.md": "edited", "built/tracked.md": "edited", "noise.log": "x"})
        edited = ("docs/b.md", "built/tracked.md")
        assert await changed(saved, root, *edited) == {*edited}
        repository.git("add", "--all")
        repository.commit()
        assert await changed(commits, root, ".git/refs/heads/main") == {".git/refs/heads/main"}
        await changed(saved, root, ".git/refs/heads/main")
        repository.git("switch", "--quiet", "--create", "feature/x")
        await changed(commits, root, ".git/HEAD")
        repository.commit({"c.md": "c"})
        await changed(commits, root, ".git/refs/heads/feature/x")


async def test_failed_syncs_are_repeated_until_the_source_is_gone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure is reported with the time to the next try; a deleted source ends the watch."""
    monkeypatch.setattr(watch, "_BACKOFF", Backoff(timedelta(0), timedelta(0), jitter=0))
    write_files(root, {"a.md": "a"})
    errors = [Unavailable("Redis is away", "start it"), UsageError("a.md belongs to another")]
    reports: list[Set[str]] = []
    notes: list[str] = []

    async def sync() -> SyncReport:
        if errors:
            raise errors.pop(0)
        return SyncReport("root", str(root), "directory")

    async with watcher(root) as watching:
        following = asyncio.create_task(
            keep_in_step(watching, sync, lambda paths, _: reports.append(paths), notes.append)
        )
        write_files(root, {"a.md": "edited"})
        await eventually(lambda: reports, "a sync succeeded")
        assert reports == [{str(root / "a.md")}]
        assert notes == [
            f"{root}: Redis is away; start it; next try in 0 s",
            f"{root}: a.md belongs to another; next try in 0 s",
        ]
        shutil.rmtree(root)
        with pytest.raises(UsageError, match="can't be read"):
            async with within(30):
                await following
    assert len(reports) == 1


OVER_THE_LIMIT = """
import asyncio, sys
from pathlib import Path
from gateway.sync.watch import Watcher
from sources.directory import DirectorySource

async def main(root):
    async with Watcher(DirectorySource(root), poll=False, note=print) as watching:
        (root / "1" / "a.md").write_text("edited")
        print(await watching.batch())

asyncio.run(main(Path(sys.argv[1])))
"""
LIMITED = 'echo 2 > /proc/sys/user/max_inotify_watches && exec "$@"'


def test_files_are_compared_where_the_system_watches_too_few_folders(root: Path) -> None:
    """Over the limit of watched folders, a note names the settings, and changes are still found."""
    limited = ["unshare", "--user", "--map-root-user", "sh", "-c", LIMITED, "sh"]
    if shutil.which("unshare") is None or subprocess.run([*limited, "true"]).returncode:
        pytest.skip("this system does not let a user lower the limit")
    write_files(root, {f"{number}/a.md": "text" for number in range(5)})
    result = subprocess.run(
        [*limited, sys.executable, "-c", OVER_THE_LIMIT, str(root)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
        text=True,
    )
    note, changed = result.stdout.splitlines()
    assert note.startswith(f"{root}: 6 folders can't be watched")
    assert "fs.inotify.max_user_watches" in note
    assert changed == str({str(root / "1" / "a.md")})
