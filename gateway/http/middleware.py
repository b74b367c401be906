"""Checks of every request before its route: host, origin, size and time of the body."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Collection
from ipaddress import ip_address
from uuid import UUID, uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.problems import BodyTooLarge, http_problem
from runtime import metrics, protocol_limits, traces

__all__ = ["CONTENT_SECURITY_POLICY", "Guard", "RequestLog", "is_loopback"]

log = structlog.get_logger(__name__)

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_JSON_BYTES = 2**20
_BODY_SECONDS = 60.0
_GZIP_RATIO = 100
_GZIP_WINDOW = 31
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_PORT = re.compile(r":\d{1,5}$")


class Guard:
    """Rejects wrong hosts and origins, and bodies that are too big, too slow or encoded otherwise.

    A page of another site can send requests to a server on this machine, under a name that it has
    pointed here (DNS rebinding). So only known names are accepted as host.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        max_document_bytes: int,
    ) -> None:
        self._app = app
        self._hosts = _LOOPBACK | {host.lower() for host in hosts}
        self._origins = frozenset(origins)
        self._max_document_bytes = max_document_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            self._check_origin(scope, headers)
            receive = self._body(scope, headers, receive)
        except HTTPException as error:
            await http_problem(Request(scope), error)(scope, receive, _with_headers(send))
            return
        await self._app(scope, receive, _with_headers(send))

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if _PORT.sub("", host.lower()) not in self._hosts:
            raise HTTPException(421, f"this gateway does not answer to the host {host[:100]!r}")

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin in self._origins:
            return
        if origin.lower() != f"{scope['scheme']}://{headers.get('host', '').lower()}":
            raise HTTPException(403, f"requests from pages of {origin[:100]!r} are not accepted")

    def _body(self, scope: Scope, headers: Headers, receive: Receive) -> Receive:
        limit = self._limit(scope)
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            raise BodyTooLarge(limit)
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding not in {"identity", "gzip"}:
            raise HTTPException(415, "a body is sent as it is, or with gzip")
        return _Body(receive, limit, unzips=encoding == "gzip").receive

    def _limit(self, scope: Scope) -> int:
        if scope["path"].endswith(("/document", "/rag/index")):
            return self._max_document_bytes
        if scope["path"].endswith("/changes"):
            return protocol_limits.EVENT_BYTES
        return _JSON_BYTES


def is_loopback(host: str) -> bool:
    """Return whether a name or an IP address is one of this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Body:
    """The body of one request, counted and unpacked while it is received."""

    def __init__(self, receive: Receive, limit_bytes: int, *, unzips: bool) -> None:
        self._receive = receive
        self._limit = limit_bytes
        self._packed = 0
        self._size = 0
        self._ends_at = asyncio.get_running_loop().time() + _BODY_SECONDS
        self._ended = False
        self._unzip = zlib.decompressobj(_GZIP_WINDOW) if unzips else None

    async def receive(self) -> Message:
        """Return the next part of the body, or the end of the connection."""
        if self._ended:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._ends_at):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, f"the body took over {_BODY_SECONDS:.0f} s") from None
        if message["type"] != "http.request":
            return message
        self._ended = not message.get("more_body", False)
        body = message.get("body", b"")
        self._packed += len(body)
        if self._unzip is not None:
            body = self._unpacked(body)
        self._size += len(body)
        if self._size > self._limit or (
            self._unzip is not None and self._size > _GZIP_RATIO * max(self._packed, 2**10)
        ):
            raise BodyTooLarge(self._limit)
        return {**message, "body": body}

    def _unpacked(self, packed: bytes) -> bytes:
        assert self._unzip is not None
        try:
            body = self._unzip.decompress(packed, self._limit - self._size + 1)
        except zlib.error:
            raise HTTPException(400, "the body is not gzip") from None
        if self._ended and not self._unzip.eof and len(body) + self._size <= self._limit:
            raise HTTPException(400, "the gzip of the body is cut off")
        return body


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, text in _HEADERS.items():
                headers.setdefault(name, text)
        await send(message)

    return send_with_headers


class RequestLog:
    """Gives each request an id, a span, a log line and its metrics, without its query and body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, method = Headers(scope=scope), scope["method"]
        method = method if method in _METHODS else "other"
        scope["headrace.request_id"] = request_id = _request_id(headers.get("x-request-id", ""))
        status = 500
        began = time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = MutableHeaders(scope=message)
                added["x-request-id"] = request_id
                added.update(scope.get("headrace.headers", {}))
            await send(message)

        caller = traces.remote(headers.get("traceparent"), headers.get("tracestate"))
        metrics.HTTP_IN_FLIGHT.inc(1)
        try:
            with traces.span(method, "server", parent=caller if caller.is_valid else None) as span:
                try:
                    await self._app(scope, receive, send_with_id)
                finally:
                    route = getattr(scope.get("route"), "path", None) or "none"
                    span.rename(f"{method} {route}")
                    span.set({"http.route": route, "http.response.status_code": status})
        finally:
            metrics.HTTP_IN_FLIGHT.inc(-1)
            seconds = time.perf_counter() - began
            metrics.HTTP_REQUESTS.inc(route=route, method=method, status=str(status))
            metrics.HTTP_REQUEST_SECONDS.observe(seconds, route=route, method=method)
            log.info(
                "http.request",
                method=method,
                route=route,
                status=status,
                ms=round(seconds * 1000, 1),
                key=scope.get("headrace.key_id"),
                request=request_id,
            )


def _request_id(sent: str) -> str:
    """Return the caller's id if it is a UUID, else a new one."""
    try:
        return str(UUID(sent))
    except ValueError:
        return str(uuid4())
