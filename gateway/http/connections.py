"""HTTP/1.1 connections of the gateway: uvicorn's, with limits of time for slow clients.

uvicorn waits without a limit for the first request of a connection, for the rest of a head, for the
rest of a body that no route has read, and for a client that does not read its response. Clients
could hold any number of connections, and memory, that way.
"""

from __future__ import annotations

import asyncio
import json
import sys
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gateway.http.problems import PROBLEM_TYPE, problem_of_status

__all__ = [
    "HEAD_BYTES",
    "HEAD_SECONDS",
    "STOP_SECONDS",
    "WRITE_SECONDS",
    "Connection",
    "server_config",
]

HEAD_BYTES: Final = 32 * 2**10
"""Longest head of a request: its first line and its headers."""
HEAD_SECONDS: Final = 10.0
"""Longest time for the head of a request, from the first byte or the start of the connection."""
WRITE_SECONDS: Final = 60.0
"""Longest time in which a client takes what was written to it; a slower one is cut off."""
STOP_SECONDS: Final = 3
"""Time that requests in flight have to end when the process stops."""

_LINGER_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 75
"""Longer than the pools of clients keep a connection: a POST on a closed one would be lost."""


class Connection(H11Protocol):
    """One connection of a client."""

    head_seconds = HEAD_SECONDS
    write_seconds = WRITE_SECONDS
    _write_timer: asyncio.TimerHandle | None = None
    _timer: asyncio.TimerHandle | None = None
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        # asyncio does so only for sockets whose protocol number is set; a response of two parts
        # would wait 40 ms for an acknowledgement
        transport.get_extra_info("socket").setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the client; those after a refusal are discarded."""
        if not self._is_refused:
            super().data_received(data)
            self._watch()

    def pause_writing(self) -> None:
        """Wait for the client to take what was written."""
        super().pause_writing()
        if self._write_timer is None:
            # `close` would go on waiting for the client
            abort = self.transport.abort
            self._write_timer = self.loop.call_later(self.write_seconds, abort)

    def resume_writing(self) -> None:
        """Write on; the client has taken almost everything."""
        super().resume_writing()
        self._stop_write_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one."""
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP with a problem, and close the connection."""
        error = sys.exc_info()[1]
        too_long = isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431
        self._refuse(431 if too_long else 400, "the head is too long" if too_long else msg)

    def _watch(self) -> None:
        """Run the timer while the client owes a part of a request that no route waits for."""
        if self._is_refused or self.transport.is_closing() or not self._is_owed():
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _is_owed(self) -> bool:
        if self.conn.their_state is h11.IDLE:
            return self.cycle is None or bool(self.conn.trailing_data[0])
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.conn.trailing_data[0] and self.conn.their_state is h11.IDLE:
            self._refuse(408, f"the head of the request took over {self.head_seconds:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = json.dumps(problem_of_status(status, detail)).encode()
            headers = {
                "content-type": PROBLEM_TYPE,
                "content-length": str(len(body)),
                "connection": "close",
            }
            for event in (
                h11.Response(status_code=status, headers=list(headers.items())),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
            self._is_refused = True
            if self.transport.can_write_eof():
                # closing at once would reset the connection, and the client would lose the response
                self.transport.write_eof()
                self.loop.call_later(_LINGER_SECONDS, self.transport.close)
                return
        self.transport.close()


def server_config(app: ASGIApp, **options: Any) -> uvicorn.Config:
    """Configure uvicorn for the gateway; ``options`` are those of ``uvicorn.Config``."""
    return uvicorn.Config(
        app,
        **{
            "http": Connection,
            "ws": "none",
            "log_config": None,
            "access_log": False,
            "server_header": False,
            "proxy_headers": False,
            "timeout_keep_alive": _KEEP_ALIVE_SECONDS,
            "timeout_graceful_shutdown": STOP_SECONDS,
            "h11_max_incomplete_event_size": HEAD_BYTES,
            **options,
        },
    )
