"""Command server of `up`: forks processes that have all modules loaded, for commands and services.

A command spends most of its processor time on imports, and modules take most of the memory of a
gateway or a worker. The server is forked from `up` before that has threads, so all these processes
share most of their memory. It is one thread without an event loop, and does nothing while there is
no command.

Each connection (``gateway.processes.forked_command``) is one command. The reply is the id of its
process when it is accepted, and its exit code when it has ended. Bytes of the client are signals
for it, and the end of the connection ends it.
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
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_settings import SettingsError

from gateway.processes.forked_command import (
    COMMANDS,
    FORWARDED,
    NUMBER_BYTES,
    SOCKET_NAME,
    STREAMS,
    identity,
    send_order,
)
from runtime.child_process import PRIVATE_MASK, is_alive
from runtime.settings import Settings

__all__ = ["CommandServer", "ForkedService", "command_server"]

_PRELOADED = (
    "gateway.answer_view",
    "gateway.commands.ask",
    "gateway.commands.crawl",
    "gateway.commands.serve",
    "gateway.commands.sync",
    "gateway.commands.worker",
    "gateway.line_view",
    "gateway.sync.refresh",
    "migrations",
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
_POLL_SECONDS = 0.02
_START_SECONDS = 30.0
"""Longest wait for a service, which begins once the modules are loaded."""
_ARGUMENTS_START, _ARGUMENTS_END = 45, 46
"""Fields of ``/proc/self/stat`` behind the name of the program: addresses of the command line."""
_LONGEST_PATH = 100
"""Bytes of a path that every system accepts for a socket."""


class CommandServer:
    """Side of `up`: it names the home in which the forked server listens, and orders services."""

    def __init__(self, channel: socket.socket | None) -> None:
        self._channel = channel

    def listen(self, home: Path) -> None:
        """Load the modules, then listen in a home, which is private and locked by this `up`."""
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(os.fsencode(home / SOCKET_NAME))

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: int,
        stop_signal: signal.Signals,
    ) -> ForkedService | None:
        """Run a command that writes to ``output``; it ends by ``stop_signal`` with this process.

        Call it after ``listen``. Returns None if the server has ended, or runs other code than is
        installed now.
        """
        if self._channel is None:
            return None
        connection, end = socket.socketpair()
        connection.settimeout(_START_SECONDS)
        try:
            with end, open(os.devnull, "rb") as nothing:  # noqa: PTH123
                socket.send_fds(self._channel, [b"\n"], [end.fileno()])
                streams = nothing.fileno(), output, output
                send_order(connection, arguments, environment, streams, PRIVATE_MASK, stop_signal)
            pid = connection.recv(NUMBER_BYTES)
        except OSError:
            pid = b""
        if not pid:
            connection.close()
            return None
        return ForkedService(int.from_bytes(pid, "big", signed=True), connection)


class ForkedService:
    """A process of the server, with the methods of ``subprocess.Popen`` that its starter needs."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self._connection = connection
        self._exit_code: int | None = None
        self._is_alone = False
        connection.setblocking(False)

    def poll(self) -> int | None:
        """Return the exit code, or the negative number of the fatal signal; None while it runs."""
        if self._exit_code is None and not self._is_alone:
            with contextlib.suppress(BlockingIOError):
                self._read_exit_code()
        if self._is_alone and not is_alive(self.pid):
            self._exit_code = -signal.SIGTERM
        return self._exit_code

    def wait(self) -> int:
        """Wait for the end; return what ``poll`` does."""
        while (code := self.poll()) is None:
            time.sleep(_POLL_SECONDS)
        return code

    def descriptor_of_end(self) -> int | None:
        """Return a new file descriptor that can be read once there is an exit code.

        Returns None if the server was killed, and has left the process alone.
        """
        return (
            None
            if self._is_alone or self._exit_code is not None
            else os.dup(self._connection.fileno())
        )

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is not None:
            return
        with contextlib.suppress(OSError):
            if self._is_alone:
                os.kill(self.pid, number)
            else:
                self._connection.send(bytes([number]))

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)

    def _read_exit_code(self) -> None:
        """Read the exit code. Without one the server was killed, and then ends its processes.

        Raises:
            BlockingIOError: the process runs.
        """
        try:
            code = self._connection.recv(NUMBER_BYTES)
        except ConnectionError:
            code = b""
        self._connection.close()
        if code:
            self._exit_code = int.from_bytes(code, "big", signed=True)
        else:
            self._is_alone = True


@contextlib.contextmanager
def command_server() -> Iterator[CommandServer]:
    """Fork the server. It ends with this context or this process, after its commands have ended.

    Call it before the process has threads or an event loop.
    """
    if sys.platform != "linux":
        yield CommandServer(None)
        return
    channel, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.collect()
    gc.freeze()  # a collection writes to each object that it examines, and so ends the sharing
    pid = os.fork()
    if pid == 0:
        channel.close()
        _serve_until_closed(end)
    end.close()
    try:
        yield CommandServer(channel)
    finally:
        channel.close()
        os.waitpid(pid, 0)


def _serve_until_closed(channel: socket.socket) -> NoReturn:
    """Wait for a path on the channel, and serve until the channel is closed."""
    try:
        os.setsid()  # Ctrl-C is for `up`, which then closes the channel
        null = os.open(os.devnull, os.O_RDWR)
        for stream in STREAMS:
            os.dup2(null, stream)
        if path := channel.recv(_LONGEST_PATH * 10):
            _load()
            _Server(channel).serve(path)
    except BaseException:  # noqa: BLE001  # commands then run in their own processes
        os._exit(1)
    os._exit(0)


def _load() -> None:
    """Import what commands need, and build what each of them would build at its start."""
    for name in _PRELOADED:
        import_module(name)
    from gateway.main import prepare  # noqa: PLC0415  # it imports this package

    prepare(sorted(COMMANDS))
    with contextlib.suppress(ValidationError, SettingsError):  # each command reports it
        Settings()


class _Server:
    """Forks a process for each connection, and reports its exit code."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._identity = json.loads(json.dumps(identity()))
        self._code = _loaded_code()
        self._clients: dict[int, socket.socket] = {}
        self._stop_signals: dict[int, int] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._bell, self._ringer = socket.socketpair()
        self._ends = False

    def serve(self, path: bytes) -> None:
        """Serve at a path, and `up`, until the channel is closed and all commands have ended."""
        for end in (self._bell, self._ringer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._selector.register(self._channel, selectors.EVENT_READ, self._accept_service)
        self._selector.register(self._bell, selectors.EVENT_READ, self._reap)
        if len(path) <= _LONGEST_PATH:
            self._listen(Path(os.fsdecode(path)))
        gc.collect()
        gc.freeze()
        while not self._ends or self._clients:
            for key, _ in self._selector.select():
                key.data()

    def _listen(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept_command)

    def _end(self) -> None:
        """Accept no further command."""
        self._ends = True
        self._selector.unregister(self._channel)
        if path := self._listener.getsockname():
            self._selector.unregister(self._listener)
            Path(path).unlink(missing_ok=True)
        self._listener.close()

    def _accept_service(self) -> None:
        _, clients, _, _ = socket.recv_fds(self._channel, 1, 1)
        if not clients:
            self._end()
        for client in clients:
            self._accept(socket.socket(fileno=client))

    def _accept_command(self) -> None:
        client, _ = self._listener.accept()
        self._accept(client)

    def _accept(self, client: socket.socket) -> None:
        client.settimeout(_ORDER_SECONDS)
        streams: list[int] = []
        try:
            order, streams = _receive(client)
            is_accepted = _user_of(client) == os.geteuid() and self._accepts(order, streams)
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

    def _fork(self, client: socket.socket, order: dict[str, Any], streams: Sequence[int]) -> None:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # too many processes, or no memory
            client.close()
            return
        if pid == 0:
            self._leave(client)
            _become(order, streams, parent)
        self._clients[pid] = client
        self._stop_signals[pid] = order["stop_signal"]
        self._selector.register(client, selectors.EVENT_READ, partial(self._signal, pid))
        with contextlib.suppress(OSError):  # the client has ended, which is seen next
            client.sendall(pid.to_bytes(NUMBER_BYTES, "big", signed=True))

    def _signal(self, pid: int) -> None:
        """Forward signals of the client, or end the process of a client that has ended."""
        client = self._clients.get(pid)
        if client is None:
            return
        try:
            numbers = client.recv(16)
        except OSError:
            numbers = b""
        if not numbers:
            self._selector.unregister(client)
        for number in numbers or [self._stop_signals[pid]]:
            os.kill(pid, number)

    def _forget(self, pid: int) -> socket.socket:
        client = self._clients.pop(pid)
        del self._stop_signals[pid]
        if client in self._selector.get_map():
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
                        client.sendall(code.to_bytes(NUMBER_BYTES, "big", signed=True))

    def _leave(self, client: socket.socket) -> None:
        """Close the server's resources in the child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        own = self._channel, self._listener, self._bell, self._ringer
        for end in (*own, client, *self._clients.values()):
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
            times[file] = os.stat(file).st_mtime_ns  # noqa: PTH116  # of Path, 1,000 take 10 ms
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
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, order["stop_signal"], 0, 0, 0)
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
    _show_arguments(order["arguments"])


def _show_arguments(arguments: Sequence[str]) -> None:
    """Put the arguments of the command in the place of those of `up` in lists of processes."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
    line = "\0".join(["headrace", *arguments]).encode()[: end - start - 1]
    ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)
