"""Files of a site for crawlers: robots.txt, llms.txt and sitemaps."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator

from protego import Protego
from yarl import URL

from content.extractors.xml_tree import local_name, parse_xml
from runtime.errors import Damaged, HeadraceError, Unavailable, UsageError
from sources.web.addresses import Scope, origin_of, to_address
from sources.web.fetcher import Fetcher, NotPublic, Response, Unreachable

__all__ = ["AGENT", "MOST_HOPS", "Robots", "Seeds", "explained", "read_robots", "redirect_of"]

AGENT = "headrace"
MOST_HOPS = 5
_MOST_ROBOTS_BYTES = 500 * 1024
_MOST_BYTES = 50 * 2**20
_MOST_SITEMAPS = 50
_MOST_SEEDS = 50_000
_OK = 200
_GONE = (404, 410)
_SERVER_ERROR = 500
_REDIRECTS = (301, 302, 303, 307, 308)
_GZIP = b"\x1f\x8b"
_LINK = re.compile(r"\]\(\s*<?([^)\s>]{1,2000})")


class Robots:
    """Rules of a site for this crawler, by its ``robots.txt``."""

    def __init__(self, text: str) -> None:
        self._rules = Protego.parse(text)

    def allows(self, url: URL) -> bool:
        """True if the site allows to request the address."""
        return bool(self._rules.can_fetch(str(url), AGENT))

    @property
    def delay_seconds(self) -> float:
        """Pause between two requests that the site asks for, or 0."""
        rate = self._rules.request_rate(AGENT)
        pause = rate.seconds / rate.requests if rate is not None and rate.requests else 0.0
        return max(float(self._rules.crawl_delay(AGENT) or 0), float(pause))

    @property
    def sitemaps(self) -> list[str]:
        """Addresses of sitemaps as they are written."""
        return list(self._rules.sitemaps)


async def read_robots(fetcher: Fetcher, url: URL) -> Robots:
    """Read the rules of the site of an address, and take over its pause.

    A site without the file allows everything. One that can't give it allows nothing.

    Raises:
        UsageError: the host is at an address that is not public.
        Unavailable: the file can't be read because of an error of the server or the network.
    """
    address = URL(origin_of(url)) / "robots.txt"
    try:
        response = await _follow(fetcher, address, _MOST_ROBOTS_BYTES)
    except Unreachable as error:
        raise explained(address, error) from None
    if response.status >= _SERVER_ERROR:
        raise Unavailable(
            f"{address} can't be read: the server responded {response.status}", "crawl again later"
        )
    robots = Robots(response.raw.decode("utf-8", "replace") if response.status == _OK else "")
    fetcher.slow_down(robots.delay_seconds)
    return robots


async def _follow(fetcher: Fetcher, url: URL, most_bytes: int) -> Response:
    """Request an address and follow up to five redirects; returns the last response.

    Raises:
        Unreachable: as ``Fetcher.get``, or there are more redirects.
    """
    for _ in range(MOST_HOPS + 1):
        response = await fetcher.get(url, lambda *_: most_bytes)
        target = redirect_of(response)
        if target is None:
            return response
        url = target
    raise Unreachable(f"more than {MOST_HOPS} redirects")


def explained(url: URL, error: Unreachable) -> UsageError | Unavailable:
    """Error that ends a crawl whose first requests have failed."""
    message = f"{url} can't be read: {error}"
    if isinstance(error, NotPublic):
        return UsageError(message, "add --allow-private if you mean this host")
    return Unavailable(message, "check the address")


def redirect_of(response: Response) -> URL | None:
    """Address to which a response redirects; None if it does not.

    Raises:
        Unreachable: it redirects to something else than a page of the web.
    """
    if response.status not in _REDIRECTS:
        return None
    location = response.headers.get("Location", "")
    target = to_address(location, response.url)
    if target is None:
        raise Unreachable(f"it redirects to {location!r:.200}")
    return target


class Seeds:
    """Pages that a site names for crawlers.

    Args:
        fetcher: sender of requests.
        robots: rules of the site.
        scope: part of the site.
        most_bytes: bytes of content that the fetcher may have received when the files are read.

    Attributes:
        is_complete: false if a file could not be read, so that pages may be missing.
    """

    def __init__(self, fetcher: Fetcher, robots: Robots, scope: Scope, most_bytes: int) -> None:
        self._fetcher = fetcher
        self._robots = robots
        self._scope = scope
        self._most_bytes = most_bytes
        self.is_complete = True

    async def read(self) -> list[URL]:
        """Read ``llms.txt`` at the root and in the folder of the scope, then the sitemaps."""
        root = URL(self._scope.origin)
        folders = dict.fromkeys(["/", self._scope.prefix.rpartition("/")[0] + "/"])
        urls: dict[URL, None] = {}
        for folder in folders:
            address = root.join(URL(folder + "llms.txt", encoded=True))
            text = (await self._content(address)).decode("utf-8", "replace")
            links = (to_address(match[1], address) for match in _LINK.finditer(text))
            urls |= dict.fromkeys(filter(None, links))
        addresses = [to_address(text, root) for text in self._robots.sitemaps]
        named = [url for url in addresses if url is not None]
        guessed = root / "sitemap.xml"
        pending = named or [guessed]
        seen = set(pending)
        while pending and len(seen) <= _MOST_SITEMAPS and len(urls) < _MOST_SEEDS:
            address = pending.pop(0)
            is_named = bool(named) or address != guessed
            try:
                raw = await self._content(address, is_named=is_named)
                entries = list(_locations(_unpacked(raw)))
            except HeadraceError:
                # many sites respond with a page of their own where there is no sitemap
                self.is_complete = self.is_complete and not is_named
                continue
            for kind, link in entries:
                url = to_address(link, address)
                if url is None:
                    continue
                if kind == "url":
                    urls[url] = None
                elif url not in seen:
                    seen.add(url)
                    pending.append(url)
        if pending:
            self.is_complete = False
        return list(urls)

    async def _content(self, url: URL, *, is_named: bool = False) -> bytes:
        """Content of a file; empty if there is none, if it can't be read, or at the limit.

        ``is_named``: the site names the file, so a status such as 403 does not mean that there is
        none.
        """
        most_bytes = min(_MOST_BYTES, self._most_bytes - self._fetcher.received_bytes)
        if most_bytes <= 0:
            self.is_complete = False
            return b""
        try:
            response = await _follow(self._fetcher, url, most_bytes)
        except Unreachable:
            self.is_complete = False
            return b""
        is_denied = is_named and response.status not in (_OK, *_GONE)
        if response.status >= _SERVER_ERROR or is_denied or response.is_oversized:
            self.is_complete = False
        return response.raw


def _unpacked(raw: bytes) -> bytes:
    """Content of a sitemap that may be packed, up to its limit.

    Raises:
        Damaged: it can't be unpacked.
    """
    if not raw.startswith(_GZIP):
        return raw
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(raw)).read(_MOST_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise Damaged(f"the sitemap can't be unpacked: {error}") from None


def _locations(raw: bytes) -> Iterator[tuple[str, str]]:
    """Yield ``url`` or ``sitemap`` with the address of each entry.

    Raises:
        Damaged, LimitExceeded: it is not a sitemap.
    """
    if not raw.strip():
        return
    for entry in parse_xml(raw).iterchildren("{*}*"):
        for child in entry.iterchildren("{*}loc"):
            yield local_name(entry), (child.text or "").strip()
