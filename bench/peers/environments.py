"""Environments of the peers: one virtual environment for each, made when it is first needed.

They are in the user's cache directory, under a name that changes with the packages and with Python,
so that a newer version of a peer never shares one with an older version.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import bench
from runtime.errors import Unavailable

__all__ = ["PACKAGES", "PEERS", "Environment", "environment_of"]

HEADRACE = "headrace"

PACKAGES: Mapping[str, Sequence[str]] = {
    "cocoindex": ("cocoindex==1.0.26", "asyncpg==0.32.0", "numpy==2.4.6", "pgvector==0.5.1"),
    "langchain": (
        "langchain-classic==1.0.8",
        "langchain-core==1.7.2",
        "langchain-postgres==0.0.19",
        "langchain-text-splitters==1.1.3",
        "psycopg[binary]==3.3.9",
    ),
    "llamaindex": (
        "llama-index-core==0.14.25",
        "llama-index-storage-docstore-postgres==0.6.0",
        "llama-index-vector-stores-postgres==0.9.0",
        "psycopg2-binary==2.9.13",
        # later versions download their parsers while they run
        "tree-sitter-language-pack==0.9.0",
    ),
}
"""Packages of each peer beside Headrace, with the versions that the adapters are written for."""

PEERS = (HEADRACE, *PACKAGES)

_MADE = "made"
_ADAPTERS = "bench.peers.adapters"
_REASON_CHARACTERS = 300


@dataclass(frozen=True)
class Environment:
    """Interpreter that runs the adapter of a peer."""

    peer: str
    python: str

    @property
    def command(self) -> list[str]:
        """Command of the peer's process."""
        return [self.python, "-P", "-m", f"{_ADAPTERS}.{self.peer}"]

    @property
    def needs_postgres(self) -> bool:
        """Return whether the peer has no servers of its own."""
        return self.peer != HEADRACE

    def variables(self, home: Path) -> dict[str, str]:
        """Return the variables by which the process finds the adapters.

        The environment of a peer sees nothing of ours but the package ``bench``, by a link in
        ``home``.
        """
        if self.peer == HEADRACE:
            paths = [path or os.curdir for path in sys.path]
            return {"PYTHONPATH": os.pathsep.join(paths)}
        link = home / "adapters" / "bench"
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(Path(bench.__path__[0]), target_is_directory=True)
        return {"PYTHONPATH": str(link.parent), "PYTHONDONTWRITEBYTECODE": "1"}


async def environment_of(peer: str, packages: Sequence[str] | None = None) -> Environment:
    """Return the environment of a peer, and make it first if there is none.

    ``packages`` are those of ``PACKAGES`` by default. One that was not finished is made again.

    Raises:
        Unavailable: it can't be made; the message has the reason of pip.
    """
    if peer == HEADRACE:
        return Environment(peer, sys.executable)
    packages = PACKAGES[peer] if packages is None else packages
    directory = _directory(peer, packages)
    python = directory / "bin" / "python"
    if not (directory / _MADE).exists():
        await _run(sys.executable, "-m", "venv", "--clear", str(directory))
        await _run(
            *(str(python), "-m", "pip", "install", "--quiet", "--no-input"),
            *("--disable-pip-version-check", "--only-binary", ":all:", *packages),
        )
        (directory / _MADE).touch()
    return Environment(peer, str(python))


def _directory(peer: str, packages: Sequence[str]) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    identity = " ".join((sys.version, *packages))
    digest = sha256(identity.encode()).hexdigest()[:12]
    return Path(cache) / "headrace" / "peers" / f"{peer}-{digest}"


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        lines = output.decode(errors="replace").strip().splitlines() or ["no output"]
        reason = next((line for line in reversed(lines) if "ERROR" in line), lines[-1])
        raise Unavailable(f"no environment: {reason[:_REASON_CHARACTERS]}")
