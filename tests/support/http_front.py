"""Load balancer in front of a gateway that can fail, before or after it has passed a request on."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.http.connections import server_config
from tests.support.waiting import eventually

__all__ = ["Front", "Refusal", "http_front"]

_METHODS = ["DELETE", "GET", "POST", "PUT"]
_HOP = frozenset({"content-length", "connection", "transfer-encoding", "date", "server"})


@dataclass(frozen=True)
class Refusal:
    """Response in place of the gateway's; ``after``: the gateway has handled the request first."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"<html>no problem document</html>"
    after: bool = False


class Front:
    """The load balancer at ``url``. ``requests`` are those that it received."""

    def __init__(self, url: str, upstream: httpx2.AsyncClient) -> None:
        self.url = url
        self.requests: list[Request] = []
        self._upstream = upstream
        self._refusals: deque[Refusal] = deque()

    def refuse(self, *refusals: Refusal) -> None:
        """Respond to the next requests with these."""
        self._refusals.extend(refusals)

    async def handle(self, request: Request) -> Response:
        """Pass a request on, or refuse it."""
        self.requests.append(request)
        refusal = self._refusals.popleft() if self._refusals else None
        if refusal is None or refusal.after:
            response = await self._upstream.request(
                request.method,
                request.url.path,
                params=request.url.query,
                content=await request.body(),
                headers={k: v for k, v in request.headers.items() if k not in {"host", *_HOP}},
            )
            if refusal is None:
                kept = {k: v for k, v in response.headers.items() if k not in _HOP}
                return Response(response.content, response.status_code, kept)
        return Response(refusal.body, refusal.status, dict(refusal.headers))


@asynccontextmanager
async def http_front(upstream_url: str) -> AsyncIterator[Front]:
    """Run a load balancer on a free port of loopback; it ends with the context."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        async with httpx2.AsyncClient(base_url=upstream_url, timeout=60) as upstream:
            front = Front(f"http://{host}:{port}", upstream)
            app = Starlette(routes=[Route("/{path:path}", front.handle, methods=_METHODS)])
            server = _Server(server_config(app, lifespan="off"))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                await eventually(lambda: server.started, "the front listens")
                yield front
            finally:
                server.should_exit = True
                await serving


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
