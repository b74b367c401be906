"""MCP over HTTP: the ASGI application of its path, and the metrics and log line of each call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import structlog
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from gateway.mcp.backends import Access
from gateway.mcp.server import Call, Context, create_server
from runtime import metrics
from runtime.errors import LogFull, RateLimited, UsageError

__all__ = ["McpApp"]

log = structlog.get_logger(__name__)

_ACCESS = "headrace.mcp_access"
_TRANSPORT = "http"
_TEXT_ONLY = ("results", "text")
_REFUSALS = {
    RateLimited.__name__: metrics.RATE_LIMITED,
    LogFull.__name__: metrics.PUBLISHING_REFUSED,
}
"""Counters that an error of a tool increments, as the same error of a route does."""


class McpApp:
    """ASGI application for the path of MCP, without sessions; every response is JSON.

    The application that mounts it enters ``running`` for its lifetime, and checks hosts. With
    ``?results=text``, results of tools have no structured part.

    Args:
        access_for: returns the access of a request by its Authorization header. It raises an error
            that the mounting application turns into a response (401, 429).
    """

    def __init__(self, access_for: Callable[[Request], Awaitable[Access]]) -> None:
        self._access_for = access_for
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Handle requests until the context ends."""
        server = create_server(_access_of_request, observe=_record)
        manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request.

        Raises:
            UsageError: the query has an unknown parameter. This, and the errors of ``access_for``,
                are raised before anything is sent.
        """
        if self._manager is None:
            raise RuntimeError("enter McpApp.running() first")
        request = Request(scope, receive)
        access = await self._access_for(request)
        scope[_ACCESS] = replace(access, text_only=_is_text_only(request.query_params))
        if scope["method"] != "POST":  # GET would open a stream that never has a message
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        body = await request.body()  # the SDK would make a defect of an error in `receive`
        await self._manager.asgi_app(scope, _replayed(body, receive), send)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Receive a body that was read already, and then what follows it."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return parts.pop() if parts else await receive()

    return replayed


def _is_text_only(parameters: QueryParams) -> bool:
    for parameter in parameters.multi_items():
        if parameter != _TEXT_ONLY:
            name, value = parameter
            raise UsageError(
                f"there is no parameter {name[:40]!r} with the value {value[:40]!r}",
                "use `results=text`, or none",
            )
    return bool(parameters)


async def _access_of_request(context: Context) -> Access:
    assert context.request is not None  # the transport always has one
    access: Access = context.request.scope[_ACCESS]
    return access


def _record(context: Context, call: Call) -> None:
    """Count a call, and log it without its arguments and its text."""
    assert context.request is not None  # the transport always has one
    scope: Scope = context.request.scope
    metrics.MCP_CALLS.inc(tool=call.tool, transport=_TRANSPORT, outcome=call.outcome)
    metrics.MCP_CALL_SECONDS.observe(call.seconds, tool=call.tool, transport=_TRANSPORT)
    if call.tokens:
        metrics.MCP_RESULT_TOKENS.observe(call.tokens, tool=call.tool)
    if call.outcome in _REFUSALS:
        _REFUSALS[call.outcome].inc(reason=call.outcome)
    log.info(
        "mcp.call",
        tool=call.tool,
        status=call.outcome,
        ms=round(call.seconds * 1000, 1),
        key=scope.get("headrace.key_id"),
        request=scope.get("headrace.request_id"),
    )
