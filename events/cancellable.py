"""Redis connections on which no cancellation is lost.

redis-py bounds each write by ``asyncio.wait_for``, and before Python 3.12 that function swallows a
cancellation which comes in the moment that the write ends: the task goes on as if nobody had asked
it to stop, and an ``asyncio.timeout`` around it never ends
(https://github.com/python/cpython/issues/86296).

Nor does a lost connection look like a defect: uvloop raises RuntimeError on a write to a connection
that it has seen break while its reader hasn't heard of that yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.exceptions import ConnectionError as RedisConnectionError

__all__ = ["cancellable"]


_BROKEN_IN_UVLOOP = "the handler is closed"


class _Cancellable(AbstractConnection):
    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        """As the class before; raises CancelledError where that has swallowed it."""
        asked_before = _times_cancelled()
        try:
            await super().send_packed_command(command, check_health)
        except RuntimeError as error:
            if _BROKEN_IN_UVLOOP not in str(error):
                raise
            raise RedisConnectionError("Connection lost while writing to socket.") from error
        if _times_cancelled() > asked_before:
            await self.disconnect(nowait=True)
            raise asyncio.CancelledError


class _OverTcp(_Cancellable, Connection):
    pass


class _OverTls(_Cancellable, SSLConnection):
    pass


class _OverUnixSocket(_Cancellable, UnixDomainSocketConnection):
    pass


_CLASSES: dict[type[AbstractConnection], type[AbstractConnection]] = {
    Connection: _OverTcp,
    SSLConnection: _OverTls,
    UnixDomainSocketConnection: _OverUnixSocket,
}


def cancellable(connection_class: type[AbstractConnection]) -> type[AbstractConnection]:
    """The same kind of connection, one that heeds every cancellation."""
    return _CLASSES[connection_class]


def _times_cancelled() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
