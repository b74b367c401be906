"""Log files of the processes of ``headrace up``, and the lines appended to them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["LogTail", "log_files"]

_MOST_BYTES = 2**20

_PATTERNS = {
    "up": "up.log",
    "worker": "worker*.log",
    "redis": "redis/redis.log",
    "postgres": "postgres/postgres.log",
}


def log_files(home: Path, part: str | None = None) -> dict[str, Path]:
    """Log files under ``home`` by name (``redis``, ``worker-1``), for one part or all."""
    patterns = [pattern for name, pattern in _PATTERNS.items() if part in {None, name}]
    return {path.stem: path for pattern in patterns for path in sorted(home.glob(pattern))}


class LogTail:
    """Reader of a growing file; if the file was truncated, it starts again from the beginning."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._offset = self._size() if from_end else 0
        self._rest = b""

    def last(self, count: int) -> list[str]:
        """Return the last lines; later lines are returned by ``new``."""
        self._offset = max(0, self._size() - _MOST_BYTES)
        lines = self.new()
        return lines[-count:] if count else []

    def new(self) -> list[str]:
        """Return the complete lines appended since the last call."""
        size = self._size()
        if size < self._offset:
            self._offset, self._rest = 0, b""
        if size == self._offset:
            return []
        with self._path.open("rb") as log:
            log.seek(self._offset)
            chunk = log.read(_MOST_BYTES)
        self._offset += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0
