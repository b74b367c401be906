"""The logs of what ``headrace up`` runs, as files and as lines that come in."""

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
    """Log files under ``home`` by name (``redis``, ``worker-1``), of one part or of all."""
    patterns = [pattern for name, pattern in _PATTERNS.items() if part in {None, name}]
    return {path.stem: path for pattern in patterns for path in sorted(home.glob(pattern))}


class LogTail:
    """Lines of a file that grows; one that was emptied is read from its beginning again."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._offset = self._size() if from_end else 0
        self._rest = b""

    def last(self, count: int) -> list[str]:
        """Its last lines; what comes later is for ``new``."""
        self._offset = max(0, self._size() - _MOST_BYTES)
        lines = self.new()
        return lines[-count:] if count else []

    def new(self) -> list[str]:
        """Whole lines that came since the last call."""
        size = self._size()
        if size < self._offset:
            self._offset, self._rest = 0, b""
        if size == self._offset:
            return []
        with self._path.open("rb") as log:
            log.seek(self._offset)
            found = log.read(_MOST_BYTES)
        self._offset += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0
