"""Server that forks processes with all modules loaded: ``python -P fork_server.py SOCKET``.

A command spends most of its start on imports, and the tests start thousands. Each connection asks
for one process, in one line of JSON (``Order``) with its standard streams (SCM_RIGHTS). The reply
is its process id in a line, and its exit code in another once it has ended. A process is killed
when its client ends. The server and its processes end when its standard input ends.

With a second argument, ``providers``, the library for model providers is loaded too.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pkgutil
import random
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import gateway.commands
from gateway.main import run
from processors.chunking.sandbox import child
from processors.embedders.local.tokenizer import tokenizer_path
from processors.embedders.remote import provider
from tests.chaos.armed import arm_with
from tests.support.databases import data_is_copied
from tests.support.forked_parsers import parsers_are_forked
from tests.support.forked_services import services_are_forked
from tests.support.orders import LISTENING, PARSER, Order

_PRELOADED = (
    "alembic.command",
    "processors.chunking.registry",
    "processors.embedders.local.embedder",
)
_PR_SET_PDEATHSIG = 1


class _Server:
    """Forks a process for each connection, and reports its exit code."""

    def __init__(self, path: str) -> None:
        self._clients: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._door = socket.socket(socket.AF_UNIX)
        self._bell, self._ringer = socket.socketpair()
        self._path = path

    def serve(self) -> None:
        """Serve without end."""
        for end in (self._bell, self._ringer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._door.bind(f"{self._path}~")
        self._door.listen(64)
        Path(f"{self._path}~").rename(self._path)
        for source, react in ((0, self._end), (self._door, self._fork), (self._bell, self._reap)):
            self._selector.register(source, selectors.EVENT_READ, react)
        os.write(1, LISTENING)
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _end(self) -> None:
        os._exit(0)

    def _fork(self) -> None:
        client, _ = self._door.accept()
        try:
            order, streams = Order.receive(client)
        except (OSError, ValueError, TypeError):  # the client has ended before its order
            client.close()
            return
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            self._leave(client)
            _become(order, streams, parent, self._path)
        for stream in streams:
            os.close(stream)
        self._clients[pid] = client
        self._selector.register(client, selectors.EVENT_READ, partial(self._abandon, pid))
        _say(client, pid)

    def _abandon(self, pid: int) -> None:
        """Kill the process of a client that has ended: it has nothing to send after its order.

        Both may have ended since the last look at the selector; the process is forgotten then.
        """
        if pid in self._clients:
            self._forget(pid).close()
            os.kill(pid, signal.SIGKILL)

    def _forget(self, pid: int) -> socket.socket:
        client = self._clients.pop(pid)
        self._selector.unregister(client)
        return client

    def _leave(self, client: socket.socket) -> None:
        """Close the server's resources in the child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for end in (self._door, self._bell, self._ringer, client, *self._clients.values()):
            end.close()

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in self._clients:
                    with self._forget(ended[0]) as client:
                        _say(client, os.waitstatus_to_exitcode(ended[1]))


def main(path: str, *preloaded: str) -> None:
    """Serve until the standard input has ended."""
    commands = pkgutil.iter_modules(gateway.commands.__path__, "gateway.commands.")
    for name in (*_PRELOADED, *(command.name for command in commands)):
        import_module(name)
    child._counter = cache(child._counter)
    child._counter(tokenizer_path(None))
    if "providers" in preloaded:
        provider._load_litellm()
    gc.collect()
    gc.freeze()
    _Server(path).serve()


def _say(client: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the client may be gone
        client.sendall(b"%d\n" % number)


def _become(order: Order, streams: Sequence[int], parent: int, server: str) -> None:
    """Run the order in the child, without returning."""
    code = 70
    try:
        _detach(streams, parent)
        os.environ.clear()
        os.environ.update(order.environment)
        if order.directory:
            os.chdir(order.directory)
        random.seed()
        if order.program == PARSER:
            child.main(order.arguments)
        else:
            _run(order, server)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except Exception:  # noqa: BLE001  # the last place that can print it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(order: Order, server: str) -> None:
    """Run ``headrace`` as the order says: its parsers are forked, the data of servers is copied."""
    if order.strike:
        point, *numbers = order.strike
        arm_with(point, *map(int, numbers))
    sys.argv[1:] = order.arguments
    chunkers = {"chunkers": order.chunkers} if order.chunkers else {}
    with (
        parsers_are_forked(Path(server), **chunkers),
        services_are_forked(Path(server)),
        data_is_copied(Path(server).parent),
    ):
        run()


def _detach(streams: Sequence[int], parent: int) -> None:
    """Give the process its own session and streams, and end it with the server."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(71)
    for target, source in enumerate(streams):
        os.dup2(source, target)
        os.close(source)


if __name__ == "__main__":
    main(*sys.argv[1:])
