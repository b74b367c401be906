"""Source that is a part of a web site."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from yarl import URL

from runtime.errors import Unavailable, UsageError
from sources.files import ContentFile
from sources.types import Content, Details, Listing, Read, SizeLimits, WithoutHistory
from sources.web.addresses import Scope, origin_of, to_address
from sources.web.crawl import Crawl, Limits
from sources.web.fetcher import NO_VALIDATORS, Fetcher, Manners, Response, Unreachable
from sources.web.page import Page, is_readable, pack_pages, read_page, unpack_pages
from sources.web.seeds import MOST_HOPS, Robots, Seeds, explained, read_robots, redirect_of

__all__ = ["SiteSource", "open_site"]

_UNREAD = Page("")
_OK = 200
_PERMANENT = (301, 308)
_GONE = (404, 410)


def open_site(
    url: str,
    *,
    scope: str | None = None,
    exclude: Sequence[str] = (),
    limits: Limits | None = None,
    manners: Manners | None = None,
    allow_private: bool = False,
) -> SiteSource:
    """Open the pages at a URL; nothing is requested yet.

    Args:
        url: first page; by default, the scope is its folder.
        scope: begin of the paths of all pages, such as ``/guide/``.
        exclude: patterns of paths to leave out, in the format of ``.gitignore``.
        limits: most pages and bytes.
        manners: pause between requests, and contact.
        allow_private: the host of the URL may be at an address that is not public.

    Raises:
        UsageError: it is not the URL of a page, or the scope or a pattern can't be used.
    """
    start = to_address(url)
    if start is None:
        raise UsageError(
            f"{_without_user(url)!r:.200} is not the address of a page",
            "name an address that begins with https:// or http://, without a user name",
        )
    Scope.of(start, scope, exclude)
    manners = manners or Manners()
    if allow_private:
        manners = replace(manners, private_origin=origin_of(start))
    return SiteSource(start, scope, tuple(exclude), limits or Limits(), manners)


class SiteSource(WithoutHistory):
    """Source of the pages of a site. Uris are their addresses.

    A page has changed if the server says so and its text has changed too. Listing it is a crawl.

    Args:
        start: first page.
        scope: begin of the paths of all pages; None for the folder of the first page.
        exclude: patterns of paths to leave out.
        limits: most pages and bytes.
        manners: behaviour towards the site.
    """

    kind = "web"

    def __init__(
        self,
        start: URL,
        scope: str | None,
        exclude: tuple[str, ...],
        limits: Limits,
        manners: Manners,
    ) -> None:
        self._start = start
        self._scope = scope
        self._exclude = exclude
        self._limits = limits
        self._manners = manners
        self._memory: Mapping[str, Any] = {}
        self._show: Callable[[int], None] = lambda _: None
        self._is_full = False
        self._stop: Callable[[], object] = lambda: None
        self._contents = ContentFile()
        self._pages: Mapping[str, Page] = {}
        self._delay_seconds = manners.delay_seconds

    @property
    def name(self) -> str:
        """Address of the first page."""
        return str(self._start)

    @property
    def key(self) -> str:
        """Identity, made of the address."""
        return f"web:{self._start}"

    @property
    def location(self) -> str:
        """Address of the first page."""
        return str(self._start)

    def recall(self, memory: Mapping[str, Any], show: Callable[[int], None], *, full: bool) -> None:
        """Take over the pages of the last crawl; with ``full``, each is read again."""
        self._memory, self._show, self._is_full = memory, show, full

    def stop(self) -> None:
        """End a running crawl with Unavailable."""
        self._stop()

    def list(self, sizes: SizeLimits) -> Listing:
        """Crawl the site.

        Raises:
            UsageError: the first page is gone or leads elsewhere, or there is no page.
            Unavailable: the site or its robots.txt can't be read, or the crawl was stopped.
        """
        try:
            return asyncio.run(self._crawl(sizes))
        except asyncio.CancelledError:
            raise Unavailable("the crawl was stopped", "crawl again") from None

    @contextmanager
    def reader(self, sizes: SizeLimits) -> Iterator[Read]:
        """Reader of pages by their address.

        Pages that the crawl has not read, because they are unchanged, are requested again, with the
        pause of the crawl before each.

        Raises:
            Unavailable: a page can't be read.
        """

        def read(uri: str, fingerprint: str) -> Content:
            raw = self._contents.read(uri)
            media_type = self._pages[uri].media_type
            if raw is None:
                page, raw = asyncio.run(self._read_again(URL(uri, encoded=True), sizes))
                fingerprint, media_type = page.fingerprint, page.media_type
            link = f"{uri}#{{fragment}}"
            details = Details(media_type=media_type or None, permalink_template=link)
            return Content(raw, fingerprint, details)

        yield read

    async def _crawl(self, sizes: SizeLimits) -> Listing:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        if task is not None:
            self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        async with Fetcher(self._manners) as fetcher:
            robots, first = await self._open(fetcher, sizes)
            scope = Scope.of(first.url, self._scope, self._exclude)
            # the other half is for the pages
            seeds = Seeds(fetcher, robots, scope, self._limits.content_bytes // 2)
            crawl = Crawl(
                fetcher,
                robots,
                scope,
                sizes,
                self._limits,
                self._remembered(scope),
                self._contents.keep,
                self._show,
            )
            await crawl.run([first.url, *await seeds.read()], first)
            crawl.is_complete = crawl.is_complete and seeds.is_complete
        listing = crawl.listing()
        if not listing.files:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in listing.skipped.items())
            raise UsageError(
                f"{self._start} leads to no page that can be indexed ({reasons})",
                "check the address and --scope; `headrace source delete` deletes the documents",
            )
        self._pages = crawl.pages
        self._delay_seconds = fetcher.delay_seconds
        memory = {"scope": _described(scope), **pack_pages(crawl.remembered())}
        return replace(listing, memory=memory)

    def _remembered(self, scope: Scope) -> dict[str, Page]:
        """Pages of the last crawl, if it had the same scope."""
        if self._memory.get("scope") != _described(scope):
            return {}
        pages = unpack_pages(self._memory)
        if self._is_full:
            return {uri: replace(page, validators=NO_VALIDATORS) for uri, page in pages.items()}
        return pages

    async def _open(self, fetcher: Fetcher, sizes: SizeLimits) -> tuple[Robots, Response]:
        """Request the first page, and follow its redirects within the same site.

        Raises:
            UsageError: the page is gone, is not to be crawled, or is on another site or not public.
            Unavailable: it can't be read, or redirects out of the pages of the last crawl for now.
        """
        url, is_temporary = self._start, False
        robots = await read_robots(fetcher, url)
        for _ in range(MOST_HOPS + 1):
            if not robots.allows(url):
                raise UsageError(f"robots.txt does not allow crawling {url}", "name another page")
            remembered = self._remembered(Scope.of(url, self._scope, self._exclude))
            validators = remembered.get(str(url), _UNREAD).validators
            try:
                response = await fetcher.get(url, _limit_of(sizes), validators)
                target = redirect_of(response)
            except Unreachable as error:
                raise explained(url, error) from None
            if target is None:
                self._require_page(response)
                if is_temporary:
                    self._require_same_scope(url)
                return robots, response
            is_temporary = is_temporary or response.status not in _PERMANENT
            if _site_of(target) != _site_of(self._start):
                raise UsageError(f"{url} redirects to {target}", "name that address")
            if target.origin() != url.origin():
                robots = await read_robots(fetcher, target)
            url = target
        raise UsageError(f"{self._start} redirects too often", "name another page")

    def _require_same_scope(self, url: URL) -> None:
        """Check that the first page leads to the pages of the last crawl.

        A site in maintenance, or with a login, redirects all pages to one, which is the only one
        in its scope. So all others would be deleted.
        """
        before = self._memory.get("scope")
        if before is None or self._is_full or self._scope is not None:
            return
        if before[:2] != _described(Scope.of(url, None, ()))[:2]:
            raise Unavailable(
                f"{self._start} redirects to {url}, which is not among the pages of the last crawl",
                "crawl again later, or with --full if the site has moved",
            )

    @staticmethod
    def _require_page(response: Response) -> None:
        if response.status in _GONE:
            raise UsageError(
                f"{response.url} does not exist",
                "name another page; `headrace source delete` deletes the documents of a source",
            )
        if response.status != _OK and not response.is_unchanged:
            raise Unavailable(
                f"{response.url} can't be read: the server responded {response.status}",
                "crawl again later",
            )

    async def _read_again(self, url: URL, sizes: SizeLimits) -> tuple[Page, bytes]:
        await asyncio.sleep(self._delay_seconds)
        try:
            async with Fetcher(self._manners) as fetcher:
                response = await fetcher.get(url, _limit_of(sizes))
        except Unreachable as error:
            raise Unavailable(f"{url} can't be read: {error}", "crawl again later") from None
        if response.status in _GONE:  # it was deleted after it was listed
            raise FileNotFoundError(str(url))
        self._require_page(response)
        page, raw = read_page(response)
        if page.skip is not None:  # it was a document when it was listed
            raise FileNotFoundError(str(url))
        return page, raw


def _limit_of(sizes: SizeLimits) -> Callable[[URL, str], int]:
    return lambda url, media_type: sizes.of(str(url)) if is_readable(media_type) else 0


def _described(scope: Scope) -> list[str]:
    return [scope.origin, scope.prefix, *scope.exclude]


def _site_of(url: URL) -> str:
    """Host of an address, which is the same site with and without ``www.``."""
    return (url.host or "").removeprefix("www.")


def _without_user(url: str) -> str:
    before, _, rest = url.partition("://")
    return f"{before}://{rest.rpartition('@')[2]}" if rest else url
