"""Precedence of keyword search over vectors within one process, while a backlog is indexed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic

__all__ = ["Precedence"]

_CALM = timedelta(seconds=0.05)
"""The next batch of a backlog follows sooner than that."""

_LONGEST_WAIT = timedelta(seconds=15)
"""A stream of changes that never ends delays each page of vectors by this much."""


class Precedence:
    """Makes bulk embedding wait while this process indexes bulk changes.

    Both need all cores. A document that is searchable by keyword is worth more than the vectors of
    another one, so the backlog goes first. Processes on other machines do not wait.
    """

    def __init__(self) -> None:
        self._working = 0
        self._ended_at = 0.0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def indexing(self) -> Iterator[None]:
        """Count a batch of bulk changes as in work."""
        self._working += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._working -= 1
            self._ended_at = monotonic()
            if not self._working:
                self._idle.set()

    async def wait(self) -> None:
        """Wait until no bulk changes are in work, for 15 s at most."""
        give_up = monotonic() + _LONGEST_WAIT.total_seconds()
        while (now := monotonic()) < give_up:
            calm_at = self._ended_at + _CALM.total_seconds()
            if not self._working and now >= calm_at:
                return
            pause = give_up - now if self._working else calm_at - now
            try:
                async with asyncio.timeout(min(pause, give_up - now)):
                    await (asyncio.sleep(pause) if not self._working else self._idle.wait())
            except TimeoutError:
                continue
