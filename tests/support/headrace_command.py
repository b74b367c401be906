"""``python -m MODULE`` for tests: ``python -I -S headrace_command.py SOCKET MODULE ARGUMENT...``.

It runs the module, ``gateway.main`` for ``headrace``, in a process of the fork server that listens
on the socket, with the standard streams, environment, directory and end of this process. Signals to
end are passed on.

It imports little, because tests start hundreds: it writes its ``Order`` itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STREAMS = (0, 1, 2)


def main(server: str, module: str, arguments: list[str]) -> None:
    """Run the command, and end as it ends; never returns."""
    order = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "program": module,
        "directory": os.getcwd(),  # noqa: PTH109
    }
    client = socket.socket(socket.AF_UNIX)
    client.connect(server)
    socket.send_fds(client, [b"\n"], _STREAMS)
    client.sendall(json.dumps(order).encode() + b"\n")
    lines = client.makefile("rb")
    pid = int(lines.readline())

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    # without a line the server, and so the process, has ended
    code = int(lines.readline() or -signal.SIGKILL)
    if code < 0:
        if -code in _PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
