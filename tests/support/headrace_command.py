"""``headrace`` for shells of tests: ``python -P headrace_command.py SOCKET ARGUMENT...``.

It runs the command in a process of the fork server that listens on the socket, with the standard
streams, environment, directory and exit code of this process.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.support.forking import fork
from tests.support.orders import Order

if __name__ == "__main__":
    order = Order(sys.argv[2:], dict(os.environ), directory=str(Path.cwd()))
    command = fork(Path(sys.argv[1]), order, (0, 1, 2))
    sys.exit(asyncio.run(command.wait()))
