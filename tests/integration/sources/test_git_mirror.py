from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Event, Thread

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


_UNLIMITED = 2**30


class GitServer(ThreadingTCPServer):
    """Server of the repositories below a folder; each connection ends after ``most_bytes``."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), GitConnection)
        self.command = ["git", "daemon", "--inetd", "--export-all", f"--base-path={root}"]
        self.most_bytes = _UNLIMITED

    def url(self, name: str) -> str:
        return f"git://127.0.0.1:{self.server_address[1]}/{name}"


class GitConnection(BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, GitServer)
        left = self.server.most_bytes
        with subprocess.Popen(
            self.server.command, stdin=self.request, stdout=subprocess.PIPE
        ) as process:
            assert isinstance(process.stdout, BufferedReader)
            with suppress(ConnectionError):
                while left > 0 and (part := process.stdout.read1(left)):
                    self.request.sendall(part)
                    left -= len(part)
            process.kill()


def test_only_a_damaged_mirror_is_fetched_again_as_a_whole(tmp_path: Path) -> None:
    """A transfer that breaks off and a repository that is denied leave it as it is."""
    origin = create_repository(tmp_path / "origins" / "book", {"a.md": "1"})
    origin.commit()
    mirror = tmp_path / "m" / "o.git"
    with GitServer(tmp_path / "origins") as server:
        Thread(target=server.serve_forever, daemon=True).start()
        update(mirror, server.url("book"))
        (mirror / "mark").touch()
        commit = origin.commit({"b.bin": os.urandom(5_000)})
        server.most_bytes = 2_000  # enough for the list of references
        for name in ("book", "none"):
            with pytest.raises(Unavailable, match="can't be fetched"):
                update(mirror, server.url(name))
            assert set(open_source(mirror).list(LIMITS).files) == {"a.md"}
        server.most_bytes = _UNLIMITED
        update(mirror, server.url("book"))
        assert open_source(mirror).list(LIMITS).commit == commit
        assert (mirror / "mark").exists()
        damaged = mirror / "objects" / commit[:2] / commit[2:]
        damaged.unlink()
        damaged.write_bytes(b"damaged")
        origin.commit({"c.md": "3"})
        update(mirror, server.url("book"))
        assert set(open_source(mirror).list(LIMITS).files) == {"a.md", "b.bin", "c.md"}
        assert not (mirror / "mark").exists()
        server.shutdown()


def test_a_damaged_mirror_does_not_lead_to_a_repository_around_it(tmp_path: Path) -> None:
    """Git would take the branches of the other repository for those of the mirror."""
    origin = create_repository(tmp_path / "origin", {"a.md": "1"})
    origin.commit()
    around = create_repository(tmp_path / "around", {"own.md": "2"})
    around.commit()
    around.git("checkout", "--quiet", "-b", "own")
    before = around.git("for-each-ref")
    mirror = around.path / "m" / "o.git"
    mirror.mkdir(parents=True)
    (mirror / "HEAD").write_text("damaged")
    update(mirror, str(origin.path))
    assert set(open_source(mirror).list(LIMITS).files) == {"a.md"}
    assert around.git("for-each-ref") == before


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
