"""Workers, gateways and replays of other processes from the fork server.

What ``headrace up``, a measurement or a gateway starts is a program of its own, which imports for
seconds. Here it is a small program that has a process forked, and stands for it.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from gateway.operations import replays
from runtime import worker_process
from tests.support.forking import ROOT, fork_server

__all__ = ["services_are_forked", "write_program"]

_COMMAND = [sys.executable, "-P", str(ROOT / "tests/support/headrace_command.py")]


class _Forking:
    """The part of ``sys`` that modules which start a process use."""

    def __init__(self, server: Path | None) -> None:
        self._server = server

    @property
    def executable(self) -> str:
        """Program that takes the arguments of ``python -P -m gateway.main``."""
        server = self._server or fork_server()
        program = server.with_name("python")
        if not program.exists():
            write_program(program, server, ignored=3)
        return str(program)


@contextmanager
def services_are_forked(server: Path | None = None) -> Iterator[None]:
    """Fork the workers, gateways and replays that this process would start by ``python -P -m``.

    An ``up`` in the background is not forked, because its starter awaits the id of its process.

    ``server``: socket of the fork server; None for that of this run.
    """
    with ExitStack() as stack:
        for module in (replays, worker_process):
            stack.enter_context(patch.object(module, "sys", _Forking(server)))
        yield


def write_program(program: Path, server: Path, *, ignored: int = 0) -> None:
    """Write a program ``headrace`` that runs in a process of a fork server.

    ``ignored``: number of leading arguments that are left out.
    """
    command = shlex.join([*_COMMAND, str(server)])
    draft = program.with_name(f"{program.name}.{os.getpid()}")
    draft.write_text(f'#!/bin/sh\nshift {ignored}\nPYTHONPATH={ROOT} exec {command} "$@"\n')
    draft.chmod(0o755)
    draft.rename(program)
