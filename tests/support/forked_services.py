"""Workers, gateways, replays, git hooks and measurements from the fork server.

What ``headrace up``, a measurement, a gateway or a hook starts is a program of its own, which
imports for seconds. Here it is a small program that has a process forked, and stands for it. Only
an ``up`` in the background has no such program, because its starter awaits the id of its process.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.content import process
from bench.peers import environments
from bench.peers.adapters import headrace
from gateway.operations import replays
from gateway.processes import background
from gateway.sync import hook
from runtime import worker_process
from runtime.private import open_private
from tests.support.forking import ROOT, Forked, fork, fork_server
from tests.support.orders import HEADRACE, Order

__all__ = ["services_are_forked", "write_program"]

_COMMAND = [sys.executable, "-I", "-S", str(ROOT / "tests/support/headrace_command.py")]


class _Forking:
    """``sys`` for modules that start a process."""

    def __init__(self, server: Path | None) -> None:
        self._server = server

    @property
    def executable(self) -> str:
        """Program that takes the arguments of ``python -P -m MODULE``."""
        server = self._server or fork_server()
        program = server.with_name("python")
        if not program.exists():
            _write(program, f'module=$3\nshift 3\n{_order(server)} "$module" "$@"')
        return str(program)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


class _ForkedUp:
    """Part of ``subprocess.Popen`` that the starter of an ``up`` in the background uses."""

    def __init__(self, process: Forked) -> None:
        self._process = process
        self.pid = process.pid

    def poll(self) -> int | None:
        """Exit code; None while the process runs."""
        return self._process.exit_code

    def terminate(self) -> None:
        """Ask the process to end."""
        self._process.send(signal.SIGTERM)


def _fork_up(server: Path | None, log: Path, options: Sequence[str]) -> _ForkedUp:
    order = Order(
        ["up", "--quiet", *options], dict(os.environ), directory=str(Path.cwd()), outlives=True
    )
    with Path(os.devnull).open("rb") as nothing, open_private(log, "ab") as output:
        streams = (nothing.fileno(), output.fileno(), output.fileno())
        return _ForkedUp(fork(server or fork_server(), order, streams))


@contextmanager
def services_are_forked(server: Path | None = None) -> Iterator[None]:
    """Fork the services and measurements that this process would start by ``python -P -m``.

    ``server``: socket of the fork server; None for that of this run.
    """
    with ExitStack() as stack:
        for module in (hook, replays, worker_process, process, environments, headrace):
            stack.enter_context(patch.object(module, "sys", _Forking(server)))
        stack.enter_context(patch.object(background, "_spawn", partial(_fork_up, server)))
        yield


def write_program(program: Path, server: Path) -> None:
    """Write a program ``headrace`` that runs in a process of a fork server."""
    _write(program, f'{_order(server)} {HEADRACE} "$@"')


def _order(server: Path) -> str:
    return f"PYTHONPATH={ROOT} exec {shlex.join([*_COMMAND, str(server)])}"


def _write(program: Path, script: str) -> None:
    draft = program.with_name(f"{program.name}.{os.getpid()}")
    draft.write_text(f"#!/bin/sh\n{script}\n")
    draft.chmod(0o755)
    draft.rename(program)
