"""Checks of every request before its route: host, origin, size and time of the body."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Collection
from http import HTTPStatus
from ipaddress import ip_address
from uuid import UUID, uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.connections import HEAD_BYTES
from gateway.http.problems import BodyTooLarge, headrace_problem, http_problem
from runtime import metrics, protocol_limits, traces
from runtime.errors import WorkerEnding

__all__ = ["CONTENT_SECURITY_POLICY", "HOOK_BYTES", "Guard", "RequestLog", "is_loopback"]

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
_HEADER_BYTES = 8 * 2**10
_JSON_BYTES = 2**20
HOOK_BYTES = 26_214_400
"""Most bytes of a delivery of a webhook; GitHub sends up to 25 MB."""
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
        response = _Response(scope, send)
        try:
            _check_head(scope)
            self._check_host(headers)
            self._check_origin(scope, headers)
            body = self._body(scope, headers, receive)
        except HTTPException as error:
            await response.fail(error)
            return
        try:
            await self._app(scope, body, response.send)
        except ClientDisconnect:
            return  # the client has gone
        except asyncio.CancelledError:  # the process ends, and has waited long enough
            await response.end()

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
        if scope["path"].startswith("/hooks/"):
            return HOOK_BYTES
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


def _check_head(scope: Scope) -> None:
    """Check the size of a head that arrived at once; ``Connection`` checks the others.

    Raises:
        HTTPException: the head, or one header, is too long.
    """
    sizes = [len(name) + len(text) for name, text in scope["headers"]]
    line = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    if max(sizes, default=0) > _HEADER_BYTES:
        raise HTTPException(431, f"a header is over {_HEADER_BYTES:,} bytes")
    if sum(sizes) + line > HEAD_BYTES:
        raise HTTPException(431, f"the head is over {HEAD_BYTES:,} bytes")


class _Response:
    """The response to one request: with the usual headers, and with a problem if it is an error."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._started = False
        self._is_replaced = False

    async def send(self, message: Message) -> None:
        """Send a part of the response. An error without a body gets a problem as its body."""
        if self._is_replaced:
            return
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if message["status"] >= 400 and "content-type" not in headers:
                self._is_replaced = True
                kept = {name: text for name, text in headers.items() if name != "content-length"}
                status = int(message["status"])
                await self.fail(HTTPException(status, HTTPStatus(status).phrase, kept))
                return
            for name, text in _HEADERS.items():
                headers.setdefault(name, text)
            self._started = True
        await self._send(message)

    async def fail(self, error: HTTPException) -> None:
        """Send an error that only HTTP has."""
        await self._respond(http_problem(Request(self._scope), error))

    async def end(self) -> None:
        """Send that the process ends, if nothing was sent; the connection is closed after it."""
        if not self._started:
            error = WorkerEnding("the gateway is ending", "repeat the request")
            await self._respond(headrace_problem(Request(self._scope), error))

    async def _respond(self, response: Response) -> None:
        self._started = True
        for name, text in _HEADERS.items():
            response.headers.setdefault(name, text)
        await response(self._scope, _nothing_more, self._send)


async def _nothing_more() -> Message:
    return {"type": "http.disconnect"}


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
        status, body_bytes = 500, 0
        began = time.perf_counter()

        async def counted() -> Message:
            nonlocal body_bytes
            message = await receive()
            body_bytes += len(message.get("body", b""))
            return message

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
                    await self._app(scope, counted, send_with_id)
                finally:
                    route = getattr(scope.get("route"), "path", None) or "none"
                    span.rename(f"{method} {route}")
                    span.set({"http.route": route, "http.response.status_code": status})
        finally:
            metrics.HTTP_IN_FLIGHT.inc(-1)
            seconds = time.perf_counter() - began
            metrics.HTTP_REQUESTS.inc(route=route, method=method, status=str(status))
            metrics.HTTP_REQUEST_SECONDS.observe(seconds, span, route=route, method=method)
            if body_bytes:
                metrics.HTTP_BODY_BYTES.inc(body_bytes, route=route, method=method)
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
