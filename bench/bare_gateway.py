"""A server with one route and nothing else: the least that HTTP adds to a question.

``python -m bench.bare_gateway PORT REDIS_URL`` runs it on loopback.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from events.client.client import Client
from runtime.child_process import ChildProcess
from runtime.errors import ConfigurationError

__all__ = ["bare_gateway"]

_START_SECONDS = 60
_POLL_SECONDS = 0.05
_STOP = timedelta(seconds=10)


@asynccontextmanager
async def bare_gateway(port: int, redis_url: str) -> AsyncIterator[str]:
    """Run the server in a process for the duration of the context; returns the URL of its route.

    Raises:
        ConfigurationError: it has ended.
        TimeoutError: it does not respond in time.
    """
    url = f"http://127.0.0.1:{port}/ask"
    command = [sys.executable, "-m", __name__, str(port), redis_url]
    child = ChildProcess("the bare gateway", command)
    child.start()
    try:
        async with asyncio.timeout(_START_SECONDS), httpx2.AsyncClient() as http:
            while not await _responds(http, url):
                child.check()
                await asyncio.sleep(_POLL_SECONDS)
        yield url
    finally:
        await child.stop(_STOP)


async def _responds(http: httpx2.AsyncClient, url: str) -> bool:
    try:
        await http.get(url)
    except httpx2.TransportError:
        return False
    return True


async def _serve(port: int, redis_url: str) -> None:
    async with Client.connect(redis_url) as client:

        async def ask(request: Request) -> Response:
            question = await request.json()
            answer = await client.ask(question["project"], question["text"])
            return Response(answer.model_dump_json(), media_type="application/json")

        application = Starlette(routes=[Route("/ask", ask, methods=["POST"])])
        config = uvicorn.Config(application, port=port, log_config=None, access_log=False)
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise ConfigurationError("usage: python -m bench.bare_gateway PORT REDIS_URL")
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2]))
