"""Precedence of keyword search over vectors within one process, while a backlog is indexed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic

__all__ = ["Precedence"]

_QUIET_PERIOD = timedelta(seconds=0.05)
"""Idle time after which a backlog counts as done: its next batch would have begun by then."""

_LONGEST_WAIT = timedelta(seconds=15)
"""Longest delay of a page of vectors, under a stream of changes that never ends."""


class Precedence:
    """Makes bulk embedding wait while this process indexes bulk changes.

    Both need all cores. Making a document searchable by keyword is worth more than the vectors of
    another one, so the backlog has precedence. Processes on other machines do not wait.
    """

    def __init__(self) -> None:
        self._batches = 0
        self._ended_at = 0.0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def indexing(self) -> Iterator[None]:
        """Count a batch of bulk changes as in work."""
        self._batches += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._batches -= 1
            self._ended_at = monotonic()
            if not self._batches:
                self._idle.set()

    async def wait(self) -> None:
        """Wait until no bulk changes are in work, for 15 s at most."""
        deadline = monotonic() + _LONGEST_WAIT.total_seconds()
        while (now := monotonic()) < deadline:
            quiet_at = self._ended_at + _QUIET_PERIOD.total_seconds()
            if not self._batches and now >= quiet_at:
                return
            pause = deadline - now if self._batches else quiet_at - now
            try:
                async with asyncio.timeout(min(pause, deadline - now)):
                    await (asyncio.sleep(pause) if not self._batches else self._idle.wait())
            except TimeoutError:
                continue
