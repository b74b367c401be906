"""HTTP server for the scrapes of a worker, on the worker's own event loop.

A worker whose loop hangs fails its scrape, which is the alarm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address

import structlog
from aiohttp import web

from runtime import metrics
from runtime.errors import ConfigurationError

__all__ = ["METRICS_PATH", "metrics_server"]

log = structlog.get_logger(__name__)

METRICS_PATH = "/metrics"

_END_WITHIN_SECONDS = 1.0
"""Grace period of a scrape at shutdown."""


@asynccontextmanager
async def metrics_server(host: str, port: int) -> AsyncIterator[str]:
    """Serve the metrics of this worker until the context ends; provides the URL.

    ``port`` 0 means a free port. Nothing but the metrics is served, without authentication.

    Raises:
        ConfigurationError: the address can't be used.
    """
    application = web.Application()
    application.router.add_get(METRICS_PATH, _scrape)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_END_WITHIN_SECONDS)
    await runner.setup()
    try:
        actual_port = await _listen(runner, host, port)
        url = f"http://{_bracketed(host)}:{actual_port}{METRICS_PATH}"
        log.info("metrics.served", url=url)
        yield url
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> int:
    """Listen on the address; return the port."""
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise ConfigurationError(
            f"metrics can't be served at {host}:{port} ({error})",
            "choose another --metrics-port, or another --metrics-host",
        ) from error
    return int(runner.addresses[0][1])


def _bracketed(host: str) -> str:
    """Return the host as a URL names it: an IPv6 address in brackets."""
    try:
        is_v6 = ip_address(host).version == 6
    except ValueError:
        return host
    return f"[{host}]" if is_v6 else host


async def _scrape(request: web.Request) -> web.Response:
    accept = request.headers.get("Accept", "")
    content = metrics.exposition(metrics.own_families(metrics.Scope.WORKER), accept)
    return web.Response(body=content, headers={"Content-Type": metrics.content_type(accept)})
