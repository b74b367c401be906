"""Chunkers that misbehave on demand, for the parser processes of a test."""

from __future__ import annotations

import os
import signal
import time

from processors.chunking import CountTokens, Cut, Source
from processors.chunking import cut as real_cut
from runtime.errors import LimitExceeded

__all__ = ["cut"]


def cut(source: Source, limit_tokens: int, count: CountTokens) -> Cut:
    """Cut a document, unless its kind, or its file below ``faulty/``, names a fault."""
    directory, _, file = source.uri.rpartition("/")
    name = file.partition(".")[0] if directory == "faulty" else source.kind
    fault = _FAULTS.get(name)
    if fault is not None:
        fault()
    return real_cut(source, limit_tokens, count)


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _abort() -> None:
    os.kill(os.getpid(), signal.SIGABRT)


def _spin() -> None:
    while True:
        pass


def _sleep() -> None:
    time.sleep(3600)


def _dawdle() -> None:
    """Imitate a parser that gets little processor time."""
    for _ in range(18):
        time.sleep(0.2)
        until = time.process_time() + 0.01
        while time.process_time() < until:
            pass


def _hoard() -> None:
    bytearray(2**40)


def _refuse() -> None:
    raise LimitExceeded("refused")


def _raise() -> None:
    raise KeyError("surprise")


_FAULTS = {
    "crash": _crash,
    "abort": _abort,
    "spin": _spin,
    "sleep": _sleep,
    "dawdle": _dawdle,
    "hoard": _hoard,
    "refuse": _refuse,
    "raise": _raise,
}
