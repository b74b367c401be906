"""Connections to Redis that lose neither a cancellation nor the news of their own loss."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from redis import exceptions
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)

__all__ = ["CANCELLABLE"]

_BROKEN_IN_UVLOOP = "the handler is closed"


class _Cancellable(AbstractConnection):
    """Connection that does not lose a cancellation, and reports its own loss as such.

    redis-py bounds each write by ``asyncio.wait_for``. Before Python 3.12 that function swallows a
    cancellation that arrives at the moment when the write ends: the task continues as if it had
    not been cancelled, and an ``asyncio.timeout`` around it never ends
    (https://github.com/python/cpython/issues/86296). uvloop raises RuntimeError on a write to a
    connection that it has seen break before its reader was notified.
    """

    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        """Send as the base class does; raise a CancelledError that it has swallowed."""
        asked_before = _times_cancelled()
        try:
            await super().send_packed_command(command, check_health)
        except RuntimeError as error:
            if _BROKEN_IN_UVLOOP not in str(error):
                raise
            raise exceptions.ConnectionError("Connection lost while writing to socket.") from error
        if _times_cancelled() > asked_before:
            await self.disconnect(nowait=True)
            raise asyncio.CancelledError


class _OverTcp(_Cancellable, Connection):
    pass


class _OverTls(_Cancellable, SSLConnection):
    pass


class _OverUnixSocket(_Cancellable, UnixDomainSocketConnection):
    pass


CANCELLABLE: dict[type[AbstractConnection], type[AbstractConnection]] = {
    Connection: _OverTcp,
    SSLConnection: _OverTls,
    UnixDomainSocketConnection: _OverUnixSocket,
}
"""Classes to connect with, by the class that redis-py would use."""


def _times_cancelled() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
