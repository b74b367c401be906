"""Server that forks processes with all modules loaded: ``python -P fork_server.py SOCKET``.

A command spends most of its start on imports, and the tests start thousands. Each connection asks
for one process, in one line of JSON (``Order``) with its standard streams (SCM_RIGHTS). The reply
is its process id in a line, and its exit code in another once it has ended. A process is killed
when its client ends, unless the order has ``outlives``. The server and its processes end when its
standard input ends.

With a second argument, ``providers``, the library for model providers is loaded too.

Parsers are forked from a process that has only their modules (socket ``parsers`` beside the other):
a fork costs as much as its memory is large, and most tests start a parser. Another such process
loads the libraries of all formats when it gets its first order (socket ``extractors``).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path

from content import registry
from processors.chunking.sandbox import child
from processors.embedders.local.tokenizer import tokenizer_path
from tests.support.orders import EXTRACTORS, LISTENING, PARSER, PARSERS, Order

_COMMANDS = "tests.support.forked_commands"
_PR_SET_PDEATHSIG = 1
_LATE_FORMATS = (
    "lxml.etree",
    "pptx.package",
    "pptx.parts.presentation",
    "python_calamine",
    "yaml",
)
"""Modules that extractors import when they need them."""


class _Server:
    """Forks a process for each connection, and reports its exit code.

    ``load`` is called before the first one.
    """

    def __init__(self, path: str, load: Callable[[], None] | None = None) -> None:
        self._load = load
        self._clients: dict[int, socket.socket] = {}
        self._outliving: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._door = socket.socket(socket.AF_UNIX)
        self._bell, self._ringer = socket.socketpair()
        self._path = path

    def listen(self) -> None:
        """Accept orders, which wait until ``serve``."""
        self._door.bind(f"{self._path}~")
        self._door.listen(64)
        Path(f"{self._path}~").rename(self._path)

    def close(self) -> None:
        """Leave the orders to another process with this server."""
        self._selector.close()
        for end in (self._door, self._bell, self._ringer):
            end.close()

    def serve(self) -> None:
        """Serve without end."""
        for end in (self._bell, self._ringer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for source, react in ((0, self._end), (self._door, self._fork), (self._bell, self._reap)):
            self._selector.register(source, selectors.EVENT_READ, react)
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
        if self._load is not None:
            self._load()
            self._load = None
            _freeze()
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            self._leave(client)
            _become(order, streams, parent, self._path)
        for stream in streams:
            os.close(stream)
        if order.outlives:
            self._outliving.add(pid)
        self._clients[pid] = client
        self._selector.register(client, selectors.EVENT_READ, partial(self._abandon, pid))
        _say(client, pid)

    def _abandon(self, pid: int) -> None:
        """Kill the process of a client that has ended: it has nothing to send after its order.

        Both may have ended since the last look at the selector; the process is forgotten then.
        """
        if pid in self._clients:
            outlives = pid in self._outliving
            self._forget(pid).close()
            if not outlives:
                os.kill(pid, signal.SIGKILL)

    def _forget(self, pid: int) -> socket.socket:
        client = self._clients.pop(pid)
        self._outliving.discard(pid)
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
    import_module("processors.chunking.registry")
    child._counter = cache(child._counter)
    child._counter(tokenizer_path(None))
    _serve_beside(
        _Server(str(Path(path).with_name(PARSERS))),
        _Server(str(Path(path).with_name(EXTRACTORS)), _load_formats),
    )
    import_module(_COMMANDS).load("providers" in preloaded)
    server = _Server(path)
    server.listen()
    os.write(1, LISTENING)
    _serve(server)


def _serve_beside(*servers: _Server) -> None:
    """Serve each in a process of its own, which ends with this one."""
    parent = os.getpid()
    for server in servers:
        server.listen()
        if os.fork() == 0:
            _end_with(parent)
            _serve(server)
        server.close()


def _load_formats() -> None:
    extractors = (extractor.partition(":")[0] for extractor in registry.EXTRACTORS.values())
    for name in (*extractors, *_LATE_FORMATS):
        import_module(name)


def _serve(server: _Server) -> None:
    _freeze()
    server.serve()


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def _say(client: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the client may be gone
        client.sendall(b"%d\n" % number)


def _become(order: Order, streams: Sequence[int], parent: int, server: str) -> None:
    """Run the order in the child, without returning."""
    code = 1
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
            import_module(_COMMANDS).run_order(order, Path(server))
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except Exception:  # noqa: BLE001  # the last place that can print it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _detach(streams: Sequence[int], parent: int) -> None:
    """Give the process its own session and streams, and end it with the server."""
    os.setsid()
    _end_with(parent)
    for target, source in enumerate(streams):
        os.dup2(source, target)
        os.close(source)


def _end_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(71)


if __name__ == "__main__":
    main(*sys.argv[1:])
