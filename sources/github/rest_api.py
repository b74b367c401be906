"""Requests to the REST API of GitHub for one repository, within its rate limits."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Self

from yarl import URL

from content.extractors.conversation.values import instant, string
from runtime.errors import Unavailable, UsageError
from sources.web.fetcher import LONGEST_WAIT, Fetcher, Response, TooBusy, Unreachable, Validators
from sources.web.fetcher import wait_of as wait_of_header
from sources.web.seeds import MOST_HOPS, explained, redirect_of

__all__ = ["EPOCH", "PER_PAGE", "Gone", "RateLimit", "RestApi", "RestPage", "is_repository"]

EPOCH = "1970-01-01T00:00:00Z"
"""Time before every thread."""

PER_PAGE = 100
_MOST_BYTES = 2**26
_TRIES = 3
_PAUSE_SECONDS = 60.0
"""Pause after a refusal that names no time, as GitHub asks for."""
_RATE_STATUSES = (403, 429)
_OK = 200
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_GONE = (301, 404, 410)
"""Statuses of a thread that was transferred, can't be seen any more, or was deleted."""
_NEXT = re.compile(r"<([^>]{1,2000})>\s*;[^,]{0,100}\brel=\"?next\b")
_REPOSITORY = re.compile(r"[\w-]{1,100}/(?!\.{1,2}$)[\w.-]{1,100}", re.ASCII)


class Gone(Exception):
    """A thread that is no longer in the repository."""


@dataclass
class RateLimit:
    """Rate limit of a token: no request before a time of the monotonic clock, in seconds."""

    blocked_until: float = 0.0


class RestPage:
    """Items of a list, as one response holds them.

    Attributes:
        items: objects of the list; empty if it has not changed.
        is_unchanged: true if the list is as it was when its ETag was given.
        etag: ETag of the list.
        at: time of the server in seconds since 1970.
    """

    def __init__(self, response: Response) -> None:
        self.is_unchanged = response.is_unchanged
        self.items: Sequence[Mapping[str, Any]] = [] if self.is_unchanged else _list_of(response)
        self.etag = response.validators.etag
        self.at = _time_of(response)


class RestApi:
    """Lists and threads of a repository.

    Args:
        fetcher: sender of requests, which has the token.
        url: address of the repository, such as ``https://api.github.com/repos/OWNER/NAME``.
        limit: rate limit of the token.
    """

    def __init__(self, fetcher: Fetcher, url: URL, limit: RateLimit) -> None:
        self._fetcher = fetcher
        self._limit = limit
        self.url = url

    @classmethod
    async def open(cls, fetcher: Fetcher, base: URL, repository: str, limit: RateLimit) -> Self:
        """Find a repository, also by an earlier name.

        Raises:
            UsageError: it does not exist, or must not be read.
            Unavailable: the server can't be reached, or its rate limit is used up.
        """
        api = cls(fetcher, base / "repos" / repository, limit)
        url = api.url
        for _ in range(MOST_HOPS + 1):
            response = await api.get(url)
            target = api._redirect_of(response)
            if target is None:
                break
            url = target
        if response.status in _GONE:
            raise UsageError(
                f"{api.url} does not exist, or GITHUB_TOKEN does not allow reading it",
                "check the name; the token needs to read issues and pull requests",
            )
        name = string(_object_of(_checked(response)).get("full_name"))
        if not is_repository(name):
            raise _unexpected(url)
        api.url = base / "repos" / name
        return api

    async def get(self, url: URL, etag: str = "") -> Response:
        """Request an address; wait up to a minute for the rate limit.

        Raises:
            UsageError: the host is at an address that is not public.
            Unavailable: the server can't be reached, or its rate limit is used up for longer.
        """
        try:
            return await self._get(url, etag)
        except TooBusy as error:
            raise Unavailable(
                f"{url} can't be read: {error}",
                "sync again then; with a GITHUB_TOKEN, the limit is higher",
            ) from None
        except Unreachable as error:
            raise explained(url, error) from None

    async def pages(
        self, path: str, since: str, etag: str = "", **options: str
    ) -> AsyncIterator[tuple[str, RestPage]]:
        """Yield the pages of a list, oldest update first, with the time from which each begins.

        Each page begins just before the end of the page before it. So an item that is updated
        or deleted during the listing moves no other item out of sight.

        Raises:
            UsageError, Unavailable: the list can't be read.
        """
        url: URL | None = self._list_url(path, since, options)
        while url is not None:
            response = await self.get(url, etag)
            page = RestPage(_checked(response))
            yield since, page
            url, etag = self._next_of(response), ""
            last = _before(page.items[-1]) if page.items else since
            if url is not None and last > since:
                since = last
                url = self._list_url(path, since, options)

    async def thread(self, number: int) -> Mapping[str, Any]:
        """Read a thread without its comments; raises Gone, and as ``pages``."""
        return _object_of(await self._of_thread(self.url / f"issues/{number}"))

    async def comments(self, kind: str, number: int) -> Sequence[Mapping[str, Any]]:
        """Read the comments of a thread; raises as ``thread``.

        ``kind`` is ``issues``, or ``pulls`` for the comments of the reviews of a pull request.
        """
        url: URL | None = (self.url / f"{kind}/{number}/comments").with_query(per_page=PER_PAGE)
        items: list[Mapping[str, Any]] = []
        while url is not None:
            response = await self._of_thread(url)
            items += _list_of(response)
            url = self._next_of(response)
        return items

    async def _get(self, url: URL, etag: str) -> Response:
        for _ in range(_TRIES):
            await self._wait()
            response = await self._fetcher.get(url, lambda *_: _MOST_BYTES, Validators(etag))
            wait = _wait_of(response)
            self._limit.blocked_until = time.monotonic() + wait
            if not (wait and response.status in _RATE_STATUSES):
                return response
        raise TooBusy(f"the server refused it {_TRIES} times because of its rate limit")

    async def _of_thread(self, url: URL) -> Response:
        response = await self.get(url)
        if response.status in _GONE:
            raise Gone(str(url))
        return _checked(response)

    async def _wait(self) -> None:
        wait = self._limit.blocked_until - time.monotonic()
        if wait > LONGEST_WAIT:
            raise TooBusy(f"the rate limit is used up for the next {wait:,.0f} s")
        await asyncio.sleep(max(wait, 0))

    def _list_url(self, path: str, since: str, options: Mapping[str, str]) -> URL:
        order = {"sort": "updated", "direction": "asc", "per_page": str(PER_PAGE)}
        return (self.url / path).with_query(since=since, **order, **options)

    def _next_of(self, response: Response) -> URL | None:
        """Address of the next page; None for the last one."""
        link = _NEXT.search(response.headers.get("Link", ""))
        return None if link is None else self._same_server(link[1])

    def _redirect_of(self, response: Response) -> URL | None:
        try:
            target = redirect_of(response)
        except Unreachable as error:
            raise explained(response.url, error) from None
        return None if target is None else self._same_server(str(target))

    def _same_server(self, address: str) -> URL:
        """Return an address; one on another server, which must not get the token, is an error."""
        try:
            url = URL(address, encoded=True)
            is_same = url.absolute and url.origin() == self.url.origin()
        except ValueError:
            is_same = False
        if not is_same:
            raise Unavailable(f"{self.url} leads to another server", "check GITHUB_API_URL")
        return url


def is_repository(name: str) -> bool:
    """True for a name of the form ``OWNER/NAME``."""
    return _REPOSITORY.fullmatch(name) is not None


def _checked(response: Response) -> Response:
    """Return a response with content or without changes; raise an error for any other."""
    url, status = response.url, response.status
    if status == _UNAUTHORIZED:
        raise UsageError(f"{url} refused the token", "check GITHUB_TOKEN")
    if status == _FORBIDDEN:
        raise UsageError(
            f"{url} refused access", "GITHUB_TOKEN needs to read issues and pull requests"
        )
    if response.is_oversized or (status != _OK and not response.is_unchanged):
        reason = "it is too large" if response.is_oversized else f"the server responded {status}"
        raise Unavailable(f"{url} can't be read: {reason}", "sync again later")
    return response


def _json_of(response: Response) -> object:
    try:
        return json.loads(response.raw)
    except (ValueError, RecursionError):
        raise _unexpected(response.url) from None


def _list_of(response: Response) -> Sequence[Mapping[str, Any]]:
    values = _json_of(response)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise _unexpected(response.url)
    return values


def _object_of(response: Response) -> Mapping[str, Any]:
    value = _json_of(response)
    if not isinstance(value, dict):
        raise _unexpected(response.url)
    return value


def _unexpected(url: URL) -> Unavailable:
    return Unavailable(f"{url} is not what the REST API of GitHub sends", "check GITHUB_API_URL")


def _wait_of(response: Response) -> float:
    """Seconds to wait before the next request; 0 if the rate limit is not used up."""
    headers = response.headers
    is_refused = response.status in _RATE_STATUSES
    if "Retry-After" in headers and is_refused:
        return max(wait_of_header(headers["Retry-After"], _PAUSE_SECONDS), 0.1)
    if headers.get("X-RateLimit-Remaining", "").strip() == "0":
        reset = headers.get("X-RateLimit-Reset", "").strip()
        is_time = reset.isascii() and reset.isdigit()
        return max(float(reset[:12]) - time.time(), 0.1) if is_time else _PAUSE_SECONDS
    return 0.0


def _before(item: Mapping[str, Any]) -> str:
    """Time one second before the last update of an item, since the server may exclude the time."""
    updated = instant(item.get("updated_at"))
    return "" if updated is None else f"{updated - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"


def _time_of(response: Response) -> float:
    try:
        return parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
    except (ValueError, OverflowError):
        return time.time()
