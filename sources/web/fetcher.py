"""Requests to one site: polite, bounded, and never to an address that is not public."""

from __future__ import annotations

import asyncio
import re
import socket
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Any, Self

import aiohttp
from yarl import URL

from sources.web.addresses import is_at, is_public

__all__ = [
    "LONGEST_WAIT",
    "NO_VALIDATORS",
    "Fetcher",
    "Manners",
    "NotPublic",
    "Response",
    "TooBusy",
    "Unreachable",
    "Validators",
    "wait_of",
]

_CONNECTIONS = 2
_SHARE_UNCHANGED = 0.1
"""Part of the pause that follows a response without content, which costs a server little."""
_LONGEST_RESPONSE = 30
_TIMEOUT = aiohttp.ClientTimeout(total=_LONGEST_RESPONSE, connect=10)
_TRIES = 3
LONGEST_WAIT = 60
_CHUNK_BYTES = 2**16
_GZIP_OR_ZLIB = 47
_NOT_MODIFIED = 304
_OK = 200
_ACCEPT = (
    "text/html, application/xhtml+xml, application/pdf, text/markdown;q=0.9, text/plain;q=0.8, "
    "*/*;q=0.5"
)

_MEDIA_TYPE = re.compile(r"[a-z0-9_.+-]{1,63}/[a-z0-9_.+-]{1,64}")
"""Media types that an event may have."""

LimitOf = Callable[[URL, str], int]
"""Most bytes to read of an address with a media type; 0 if its content is not needed."""


class Unreachable(Exception):
    """A request without a usable response; the message gives the reason."""


class NotPublic(Unreachable):
    """The host is at an address that is not public."""


class TooBusy(Unreachable):
    """The server asks to wait for longer than a crawl does."""


class _Refused(OSError):
    """A connection to an address that is not public."""


@dataclass(frozen=True, slots=True)
class Validators:
    """Values of an earlier response by which a server decides whether a page has changed."""

    etag: str = ""
    modified: str = ""

    def headers(self) -> dict[str, str]:
        """Headers of a conditional request."""
        pairs = {"If-None-Match": self.etag, "If-Modified-Since": self.modified}
        return {name: value for name, value in pairs.items() if value}


NO_VALIDATORS = Validators()


@dataclass(frozen=True, slots=True)
class Response:
    """Response of a server. ``raw`` is empty unless the status is 200 and the content is needed.

    ``is_oversized`` is true if the content has more bytes than its limit; then it is not complete.
    """

    url: URL
    status: int
    headers: Mapping[str, str]
    raw: bytes = b""
    is_oversized: bool = False

    @property
    def media_type(self) -> str:
        """Media type without parameters; empty if there is none, or what is there is not one."""
        text = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return text if _MEDIA_TYPE.fullmatch(text) else ""

    @property
    def is_unchanged(self) -> bool:
        """True if the page is as it was when the validators were given."""
        return self.status == _NOT_MODIFIED

    @property
    def validators(self) -> Validators:
        """Validators for the next request; a weak ETag is as good as a strong one here."""
        return Validators(self.headers.get("ETag", ""), self.headers.get("Last-Modified", ""))


@dataclass(frozen=True, slots=True)
class Manners:
    """Behaviour towards a site.

    Attributes:
        delay_seconds: pause between the starts of two requests.
        contact: address of the operator, for the log of the site.
        private_origin: origin that may be at an address that is not public, also with the other
            scheme.
        headers: further headers of each request.
        busy_statuses: responses after which a request is repeated at the time that they name.
    """

    delay_seconds: float = 0.25
    contact: str = ""
    private_origin: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    busy_statuses: tuple[int, ...] = (429, 503)

    @property
    def user_agent(self) -> str:
        """Name under which the crawl introduces itself."""
        contact = f"; +{self.contact}" if self.contact else ""
        return f"headrace/{version('headrace')} (crawler of a knowledge index{contact})"


@dataclass
class Fetcher:
    """Sends requests, at most two at once, with a pause between them.

    Use it as a context manager, within one event loop.

    Attributes:
        received_bytes: bytes of content so far, unpacked.
    """

    manners: Manners
    received_bytes: int = 0
    _delay: float = field(init=False, default=0.0)
    _is_prescribed: bool = field(init=False, default=False)
    _next_at: float = field(init=False, default=0.0)
    _blocked_until: float = field(init=False, default=0.0)

    async def __aenter__(self) -> Self:
        self._delay = self.manners.delay_seconds
        self._slots = asyncio.Semaphore(_CONNECTIONS)
        self._is_sooner = asyncio.Event()
        self._public = self._session(_public_socket)
        self._private = self._session(None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._public.close()
        await self._private.close()

    @property
    def delay_seconds(self) -> float:
        """Pause between the starts of two requests: that of the manners, or of the site."""
        return self._delay

    def slow_down(self, delay_seconds: float) -> None:
        """Take over a pause that the site prescribes, if it is longer."""
        if delay_seconds > self._delay:
            self._delay = min(delay_seconds, LONGEST_WAIT)
            self._is_prescribed = True

    async def get(
        self, url: URL, limit_of: LimitOf, validators: Validators = NO_VALIDATORS
    ) -> Response:
        """Request an address. Redirects are returned, not followed.

        A busy server is asked again up to twice, at the time that it names.

        Raises:
            Unreachable: there is no complete response within 30 s; NotPublic: it is not asked for.
            TooBusy: the server asks to wait for longer than a minute.
        """
        for attempt in range(1, _TRIES + 1):
            async with self._turn():
                response = await self._explained(url, limit_of, validators)
            if response.is_unchanged and not self._is_prescribed:
                self._next_at -= self._delay * (1 - _SHARE_UNCHANGED)
                self._is_sooner.set()
            if response.status not in self.manners.busy_statuses:
                return response
            wait = wait_of(response.headers.get("Retry-After", ""), float(attempt))
            if wait > LONGEST_WAIT:
                raise TooBusy(f"the server asks to come back in {wait:,.0f} s")
            self._blocked_until = max(self._blocked_until, _now() + wait)
        raise TooBusy(f"the server responded {response.status} {_TRIES} times")

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for a connection and for the end of the pause, which other responses may move."""
        async with self._slots:
            while (wait := max(self._next_at, self._blocked_until) - _now()) > 0:
                self._is_sooner.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._is_sooner.wait()
            self._next_at = _now() + self._delay
            yield

    async def _explained(self, url: URL, limit_of: LimitOf, validators: Validators) -> Response:
        try:
            return await self._request(url, limit_of, validators)
        except TimeoutError:
            raise Unreachable(f"no complete response within {_LONGEST_RESPONSE} s") from None
        except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
            cause = getattr(error, "os_error", error)
            if isinstance(cause, _Refused):
                raise NotPublic(str(cause)) from None
            raise Unreachable(f"{type(error).__name__}: {error}"[:300]) from error

    async def _request(self, url: URL, limit_of: LimitOf, validators: Validators) -> Response:
        origin = self.manners.private_origin
        is_private = origin is not None and is_at(url, URL(origin))
        session = self._private if is_private else self._public
        headers = {"Accept": _ACCEPT, **self.manners.headers, **validators.headers()}
        headers["Accept-Encoding"] = "gzip"
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            result = Response(url, response.status, response.headers)
            if response.status != _OK:
                return result
            limit = limit_of(url, result.media_type)
            if not limit:
                return result
            if (response.content_length or 0) > limit:
                return Response(url, _OK, response.headers, is_oversized=True)
            raw = await self._read(response, limit)
        return Response(url, _OK, response.headers, raw[:limit], len(raw) > limit)

    async def _read(self, response: aiohttp.ClientResponse, limit: int) -> bytes:
        """Read up to one byte more than the limit; compressed content counts as it is unpacked."""
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ValueError(f"content is encoded as {encoding!r:.40}, which was not asked for")
        unpacker = zlib.decompressobj(_GZIP_OR_ZLIB) if encoding not in ("", "identity") else None
        parts: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            part = chunk if unpacker is None else unpacker.decompress(chunk, limit + 1 - size)
            parts.append(part)
            size += len(part)
            self.received_bytes += len(part)
            if size > limit:
                return b"".join(parts)[: limit + 1]
        if unpacker is not None and size and not unpacker.eof:
            raise ValueError("compressed content is not complete")
        return b"".join(parts)

    def _session(self, factory: Callable[[Any], socket.socket] | None) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(socket_factory=factory, limit=_CONNECTIONS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self.manners.user_agent},
            timeout=_TIMEOUT,
            auto_decompress=False,
            trust_env=False,
        )


def _public_socket(address: tuple[Any, ...]) -> socket.socket:
    """Create the socket of a connection; refuse an address that is not public.

    This is called with the very address to which the connection is made. So it also refuses
    unusual forms of an address, and names whose address has changed since it was looked up.
    """
    family, kind, protocol, _, where = address
    if not is_public(str(where[0])):
        raise _Refused(f"{where[0]} is not a public address")
    return socket.socket(family, kind, protocol)


def wait_of(header: str, default: float) -> float:
    """Seconds that ``Retry-After`` asks for, which is a number or a date."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return default


def _now() -> float:
    return asyncio.get_running_loop().time()
