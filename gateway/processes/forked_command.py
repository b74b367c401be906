"""Client of the command server of `up`: run a command in a process that has all modules loaded.

It imports nothing but a few modules of the standard library, because imports take most of the
processor time of a command. ``typing`` and ``pathlib`` would take a sixth of it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import Any

__all__ = [
    "COMMANDS",
    "FORWARDED",
    "NUMBER_BYTES",
    "SOCKET_NAME",
    "STREAMS",
    "identity",
    "run_forked",
    "send_order",
]

COMMANDS = frozenset({"ask", "crawl", "github", "grep", "hook", "sync"})
"""Commands that are frequent, and whose work takes less time than their imports."""

SOCKET_NAME = "commands.sock"
NUMBER_BYTES = 4
"""Length of a process id or an exit code, big endian with a sign."""
STREAMS = (0, 1, 2)
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_ANSWER_SECONDS = 2.0
_NAMESPACES = ("mnt", "net", "pid", "user")


def run_forked(arguments: list[str]) -> int | None:
    """Run a command in a process of the running `up`; returns its exit code.

    The process has the streams, environment, directory and rights of this one. Signals are
    forwarded to it, and it is killed when this process is killed.

    Returns None at once if the command has to run in this process: no `up` runs, or it runs other
    code, as another user or in another container.
    """
    if sys.platform != "linux" or not arguments or arguments[0] not in COMMANDS:
        return None
    home = os.path.expanduser(os.environ.get("HEADRACE_HOME") or "~/.headrace")  # noqa: PTH111
    if home.startswith("~"):  # the user has no home
        return None
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(f"{home}/{SOCKET_NAME}")
            server.settimeout(_ANSWER_SECONDS)
            mask = os.umask(0)
            os.umask(mask)
            send_order(server, arguments, os.environ, STREAMS, mask)
            if not server.recv(NUMBER_BYTES):
                return None
        except OSError:
            return None
        server.settimeout(None)
        return _follow(server)


def identity() -> list[Any]:
    """Everything but the order that a command depends on; server and client must have the same.

    Raises:
        OSError: this system does not show it.
    """
    root = os.stat("/")  # noqa: PTH116
    return [
        os.getresuid(),
        os.getresgid(),
        sorted(os.getgroups()),
        [os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES],  # noqa: PTH115
        [root.st_dev, root.st_ino],
        [sys.executable, sys.version, __file__, os.environ.get("PYTHONPATH", "")],
    ]


def send_order(
    server: socket.socket,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    streams: Sequence[int],
    mask: int,
    stop_signal: int = signal.SIGKILL,
) -> None:
    """Order a process with these streams, and the directory and rights of this one.

    ``mask`` is the umask of the process. It gets ``stop_signal`` if the connection or the server
    ends.

    Raises:
        OSError: the server has ended.
    """
    order = {
        "identity": identity(),
        "arguments": [*arguments],
        "environment": dict(environment),
        "mask": mask,
        "stop_signal": int(stop_signal),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "processors": sorted(os.sched_getaffinity(0)),
        "encoding": sys.stdout.encoding,
        "errors": sys.stdout.errors,
    }
    directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        socket.send_fds(server, [b"\n"], [*streams, directory])
    finally:
        os.close(directory)
    server.sendall(json.dumps(order).encode() + b"\n")


def _follow(server: socket.socket) -> int:
    """Forward signals until the process has ended, and return its exit code."""

    def forward(number: int, _frame: FrameType | None) -> None:
        server.send(bytes([number]))

    former = {number: signal.signal(number, forward) for number in FORWARDED}
    code = server.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    for number, handler in former.items():
        signal.signal(number, handler)
    if len(code) < NUMBER_BYTES:
        print("headrace: `headrace up` was killed; run the command again", file=sys.stderr)  # noqa: T201
        return 1
    exit_code = int.from_bytes(code, "big", signed=True)
    if exit_code < 0:
        signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    return exit_code
