"""Forks workers that have all their modules loaded already: ``python -P fork_server.py SOCKET``.

A worker spends most of its start on imports, and the chaos tests start thousands. Each connection
asks for one process, in one line of JSON (``Order``), and is answered with its process id in
another. The server ends, and its workers with it, when its standard input does.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import signal
import socket
import sys
import threading
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from gateway.main import run
from processors import opening
from processors.indexing.chunking.sandbox import ChunkingPool
from tests.chaos.armed import arm_with

__all__ = ["Order"]

_PRELOADED = ("gateway.commands.worker", "processors.inference.local", "alembic.command")
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Order:
    """A process to fork: ``headrace ARGUMENTS`` with this whole environment.

    ``strike``: kill point, pass, victim and signal, as ``armed.py`` takes them; empty: none.
    ``chunkers``: the module that cuts documents, where a test has its own.
    Its output goes to ``log``, and its exit code to ``exit_file`` when it ends by itself.
    """

    arguments: list[str]
    environment: dict[str, str]
    strike: list[str]
    chunkers: str
    log: str
    exit_file: str

    def to_line(self) -> bytes:
        """As it travels."""
        return json.dumps(asdict(self)).encode() + b"\n"


def main(path: str) -> None:
    """Serve until the parent is gone."""
    for module in _PRELOADED:
        __import__(module)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{path}~")
        server.listen(64)
        Path(f"{path}~").rename(path)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        while True:
            connection, _ = server.accept()
            _serve(server, connection)


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(0)


def _serve(server: socket.socket, connection: socket.socket) -> None:
    with connection, connection.makefile("rwb") as file:
        order = Order(**json.loads(file.readline()))
        parent, child = os.getpid(), os.fork()
        if child == 0:
            server.close()
            connection.detach()
            _become(order, parent)
        file.write(b"%d\n" % child)


def _become(order: Order, parent: int) -> None:
    """Never returns, in the child."""
    code = 70
    try:
        _detach(order.log, parent)
        os.environ.clear()
        os.environ.update(order.environment)
        random.seed()
        if order.strike:
            point, *numbers = order.strike
            arm_with(point, *map(int, numbers))
        if order.chunkers:
            pool = partial(ChunkingPool, chunkers=order.chunkers)
            patch.object(opening, "ChunkingPool", pool).start()
        sys.argv[1:] = order.arguments
        run()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        Path(order.exit_file).write_text(str(code))
        os._exit(code)


def _detach(log: str, parent: int) -> None:
    """A session and streams of its own; it dies with the server."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(71)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)


if __name__ == "__main__":
    main(sys.argv[1])
