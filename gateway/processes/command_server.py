"""Command server of `up`: forks processes that have all modules loaded, for commands.

A command spends most of its processor time on imports. The server is forked from `up` before that
has threads, so both share most of their memory. It is one thread without an event loop, and does
nothing while there is no command. The first command runs in its own process, while the server
loads the modules.

Each connection (``gateway.processes.forked_command``) is one command. The reply is a byte when it
is accepted, and its exit code when it has ended. Bytes of the client are signals for it, and the
end of the connection kills it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from gateway.processes.forked_command import FORWARDED, SOCKET_NAME, STREAMS, identity

__all__ = ["CommandServer", "command_server"]

_PRELOADED = (
    "gateway.answer_view",
    "gateway.commands.ask",
    "gateway.commands.crawl",
    "gateway.commands.sync",
    "gateway.line_view",
    "gateway.sync.refresh",
    "processors.deployment",
    "processors.recipes",
    "rich.progress",
    "sources.web.site",
    "store.generations.catalog",
    "store.keys.publisher_keys",
    "store.postgres.pool",
    "store.store",
    "uvloop",
)
_PR_SET_PDEATHSIG = 1
_ORDER_SECONDS = 1.0
_LONGEST_PATH = 100
"""Bytes of a path that every system accepts for a socket."""


class CommandServer:
    """Side of `up`: it names the home in which the forked server listens."""

    def __init__(self, order: int) -> None:
        self._order = order

    def listen(self, home: Path) -> None:
        """Listen in a home, which is private and locked by this `up`."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._order, os.fsencode(home / SOCKET_NAME) + b"\n")


@contextlib.contextmanager
def command_server() -> Iterator[CommandServer]:
    """Fork the server. It ends with this context or this process, after its commands have ended.

    Call it before the process has threads or an event loop.
    """
    if sys.platform != "linux":
        yield CommandServer(os.open(os.devnull, os.O_WRONLY))
        return
    orders, order = os.pipe()
    gc.collect()
    gc.freeze()  # a collection writes to each object that it examines, and so ends the sharing
    pid = os.fork()
    if pid == 0:
        os.close(order)
        _serve_until_closed(orders)
    os.close(orders)
    try:
        yield CommandServer(order)
    finally:
        os.close(order)
        os.waitpid(pid, 0)


def _serve_until_closed(orders: int) -> NoReturn:
    """Wait for a path on the pipe, and serve until the pipe is closed."""
    try:
        os.setsid()  # Ctrl-C is for `up`, which then closes the pipe
        null = os.open(os.devnull, os.O_RDWR)
        for stream in STREAMS:
            os.dup2(null, stream)
        path = os.fsdecode(os.read(orders, _LONGEST_PATH * 10)).removesuffix("\n")
        if path and len(os.fsencode(path)) <= _LONGEST_PATH:
            _Server(Path(path), orders).serve()
    except BaseException:  # noqa: BLE001  # commands then run in their own processes
        os._exit(1)
    os._exit(0)


class _Server:
    """Forks a process for each connection, and reports its exit code."""

    def __init__(self, path: Path, orders: int) -> None:
        self._path = path
        self._orders = orders
        self._identity = json.loads(json.dumps(identity()))
        self._code: dict[str, int] = {}
        self._clients: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._bell, self._ringer = socket.socketpair()
        self._ends = False

    def serve(self) -> None:
        """Serve until the pipe of `up` is closed and all commands have ended."""
        for end in (self._bell, self._ringer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._path.unlink(missing_ok=True)
        self._listener.bind(str(self._path))
        self._listener.listen(64)
        for source, react in (
            (self._orders, self._end),
            (self._listener, self._accept),
            (self._bell, self._reap),
        ):
            self._selector.register(source, selectors.EVENT_READ, react)
        while not self._ends or self._clients:
            for key, _ in self._selector.select():
                key.data()

    def _end(self) -> None:
        """Accept no further command."""
        self._ends = True
        self._selector.unregister(self._orders)
        self._selector.unregister(self._listener)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if not self._code:
            client.close()
            self._preload()
            return
        client.settimeout(_ORDER_SECONDS)
        streams: list[int] = []
        try:
            order, streams = _receive(client)
            is_accepted = _user_of(client) == os.geteuid() and self._accepts(order, streams)
            if is_accepted:
                client.sendall(b"\n")
        except (OSError, ValueError):
            is_accepted = False
        if is_accepted:
            self._fork(client, order, streams)
        else:
            client.close()
        for stream in streams:
            os.close(stream)

    def _accepts(self, order: dict[str, Any], streams: Sequence[int]) -> bool:
        """True if a process of this server does the same as one of the client's own."""
        is_complete = len(streams) == len(STREAMS) + 1
        is_same = order.get("identity") == self._identity
        return is_complete and is_same and self._code == _code_of(self._code)

    def _preload(self) -> None:
        """Load the modules; a deployment without commands saves their memory."""
        for name in _PRELOADED:
            import_module(name)
        self._code = _loaded_code()
        gc.collect()
        gc.freeze()

    def _fork(self, client: socket.socket, order: dict[str, Any], streams: Sequence[int]) -> None:
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            self._leave(client)
            _become(order, streams, parent)
        self._clients[pid] = client
        self._selector.register(client, selectors.EVENT_READ, partial(self._signal, pid))

    def _signal(self, pid: int) -> None:
        """Forward a signal of the client, or kill the process of a client that has ended."""
        client = self._clients.get(pid)
        if client is None:
            return
        try:
            numbers = client.recv(16)
        except OSError:
            numbers = b""
        for number in numbers or [signal.SIGKILL]:
            os.kill(pid, number)
        if not numbers:
            self._forget(pid).close()

    def _forget(self, pid: int) -> socket.socket:
        client = self._clients.pop(pid)
        self._selector.unregister(client)
        return client

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in self._clients:
                    code = os.waitstatus_to_exitcode(ended[1])
                    with self._forget(ended[0]) as client, contextlib.suppress(OSError):
                        client.sendall(code.to_bytes(4, "big", signed=True))

    def _leave(self, client: socket.socket) -> None:
        """Close the server's resources in the child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        os.close(self._orders)
        for end in (self._listener, self._bell, self._ringer, client, *self._clients.values()):
            end.close()


def _user_of(client: socket.socket) -> int:
    """User id of the process at the other end."""
    size = struct.calcsize("3i")
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])


def _receive(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Order of a client, and its streams and directory.

    Raises:
        OSError: it is not complete in time.
        ValueError: it is not an order.
    """
    _, streams, _, _ = socket.recv_fds(client, 1, len(STREAMS) + 1)
    try:
        with client.makefile("rb") as file:
            return json.loads(file.readline()), streams
    except (OSError, ValueError):
        for stream in streams:
            os.close(stream)
        raise


def _loaded_code() -> dict[str, int]:
    """Files of our loaded modules, with the time of their last change."""
    root = str(Path(__file__).parents[2])
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    own = {file for file in files if file and file.startswith(root) and "site-packages" not in file}
    return _code_of(dict.fromkeys(own, 0)) if own else {}


def _code_of(files: dict[str, int]) -> dict[str, int]:
    """The same files with the time of their last change; 0 for a file that does not exist."""
    times = {}
    for file in files:
        try:
            times[file] = Path(file).stat().st_mtime_ns
        except OSError:
            times[file] = 0
    return times


def _become(order: dict[str, Any], streams: Sequence[int], parent: int) -> NoReturn:
    """Run the order in the child."""
    code = 1
    try:
        _take_over(order, streams, parent)
        from gateway.main import run_here  # noqa: PLC0415  # it imports this package

        code = run_here(order["arguments"])
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _take_over(order: dict[str, Any], streams: Sequence[int], parent: int) -> None:
    """Give this process the streams, directory and environment of the client."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    for number in FORWARDED:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    *standard, directory = streams
    os.fchdir(directory)
    for target, source in zip(STREAMS, standard, strict=True):
        os.dup2(source, target)
    for stream in streams:
        os.close(stream)
    os.umask(order["mask"])
    os.sched_setaffinity(0, order["processors"])
    if (difference := order["nice"] - os.getpriority(os.PRIO_PROCESS, 0)) > 0:
        os.nice(difference)
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    encoding, errors = order["encoding"], order["errors"]
    open_stream = partial(open, encoding=encoding, closefd=False)
    sys.stdin = open_stream(0, errors=errors)
    sys.stdout = open_stream(1, "w", errors=errors, buffering=1 if os.isatty(1) else -1)
    sys.stderr = open_stream(2, "w", errors="backslashreplace", buffering=1)
    sys.argv[1:] = order["arguments"]
