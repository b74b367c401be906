"""``python -m MODULE`` for tests: ``python -P headrace_command.py SOCKET MODULE ARGUMENT...``.

It runs the module, ``gateway.main`` for ``headrace``, in a process of the fork server that listens
on the socket, with the standard streams, environment, directory and end of this process. Signals to
end are passed on.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.support.forking import fork
from tests.support.orders import Order

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(server: Path, module: str, arguments: list[str]) -> None:
    """Run the command, and end as it ends; never returns."""
    order = Order(arguments, dict(os.environ), program=module, directory=str(Path.cwd()))
    command = fork(server, order, (0, 1, 2))

    def pass_on(number: int, _frame: FrameType | None) -> None:
        command.send(signal.Signals(number))

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    code = command.join()
    if code < 0:
        if -code in _PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
