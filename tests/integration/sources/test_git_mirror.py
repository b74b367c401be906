from __future__ import annotations

import fcntl
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from runtime.errors import Unavailable
from sources import open_source
from sources.git_mirror import update_mirror
from tests.support.repositories import create_repository
from tests.support.syncs import LIMITS


def update(folder: Path, remote: str) -> None:
    update_mirror(folder, remote, Event())


def test_a_mirror_follows_its_remote(tmp_path: Path) -> None:
    """New commits, a rewritten history and another default branch are those of the mirror too."""
    origin, mirror = create_repository(tmp_path / "origin", {"a.md": "1"}), tmp_path / "m" / "o.git"
    remote = str(origin.path)
    origin.commit()

    def files() -> set[str]:
        update(mirror, remote)
        return set(open_source(mirror).list(LIMITS).files)

    assert files() == {"a.md"}
    identity = open_source(mirror).key
    origin.commit({"b.md": "2"})
    assert files() == {"a.md", "b.md"}
    origin.git("reset", "--quiet", "--hard", "HEAD~1")
    origin.git("checkout", "--quiet", "-b", "other")
    origin.commit({"c.md": "3"})
    assert files() == {"a.md", "c.md"}
    assert open_source(mirror).key == identity == open_source(origin.path).key
    # a fetch that was killed leaves a lock
    origin.commit({"d.md": "4"})
    (mirror / "refs" / "heads" / "other.lock").touch()
    assert files() == {"a.md", "c.md", "d.md"}
    with pytest.raises(Unavailable, match="can't be fetched"):
        update(tmp_path / "m" / "none.git", str(tmp_path / "none"))
    assert not (tmp_path / "m" / "none.git").exists()


def test_a_mirror_has_the_links_of_its_remote_and_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The links are those of a clone. A token in the address is neither kept nor shown."""
    origin, mirror = create_repository(tmp_path / "origin", {"a.md": "1"}), tmp_path / "m" / "o.git"
    origin.commit()
    remote = "https://token-of-ana@github.example.org/docs/book.git"
    settings = tmp_path / "gitconfig"
    settings.write_text(f'[url "{origin.path}"]\n  insteadOf = {remote}\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    update(mirror, remote)
    link = "https://github.example.org/docs/book/blob/{commit}/{path}#L{start}-L{end}"
    assert open_source(mirror).list(LIMITS).permalink_template == link
    assert "token" not in (mirror / "config").read_text()
    with pytest.raises(Unavailable, match=r"https://127\.0\.0\.1:1/docs/.* can't be") as refusal:
        update(tmp_path / "other.git", "https://token-of-ana@127.0.0.1:1/docs/book.git")
    assert "token" not in str(refusal.value)


def test_a_mirror_runs_no_program_of_its_remote(tmp_path: Path) -> None:
    """Remotes that name a program are refused."""
    flag = tmp_path / "flag"
    with pytest.raises(Unavailable, match="can't be fetched"):
        update(tmp_path / "o.git", f"ext::sh -c touch% {flag}")
    assert not flag.exists()


def test_a_fetch_has_no_terminal_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ssh runs in a session of its own: it asks for nothing that a person would have to enter."""
    session = tmp_path / "session"
    command = f"{sys.executable} -c 'import os; print(os.getsid(0))' >{session}; false"
    monkeypatch.setenv("GIT_SSH_COMMAND", command)
    with pytest.raises(Unavailable, match="can't be fetched"):
        update(tmp_path / "o.git", "ssh://git@127.0.0.1/book.git")
    assert int(session.read_text()) != os.getsid(0)


def test_an_update_can_be_stopped(tmp_path: Path) -> None:
    """It ends while it waits for a host that does not respond, or for another update."""
    stop = Event()
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as threads:
        remote = f"git://127.0.0.1:{server.getsockname()[1]}/book"
        update = threads.submit(update_mirror, tmp_path / "o.git", remote, stop)
        connection, _ = server.accept()
        with connection:
            stop.set()
            with pytest.raises(Unavailable, match="can't be fetched"):
                update.result()
        with (tmp_path / "o.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(Unavailable, match="another process fetches it"):
                update_mirror(tmp_path / "o.git", remote, stop)
