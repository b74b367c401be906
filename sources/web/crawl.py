"""One crawl of a site: which addresses are requested, and what becomes of each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

from pathspec import GitIgnoreSpec
from yarl import URL

from sources.types import AllBut, Listing, SizeLimits, Skip
from sources.web.addresses import Scope, is_asset, to_address
from sources.web.fetcher import NO_VALIDATORS, Fetcher, Response, TooBusy, Unreachable
from sources.web.page import Page, is_readable, read_page
from sources.web.seeds import MOST_HOPS, Robots, redirect_of

__all__ = ["Crawl", "Limits"]

_AT_ONCE = 2
_MOST_FAILURES = 10
"""Failures in a row after which a site counts as down."""
_OK = 200
_GONE = (404, 410)
_SERVER_ERROR = 500
_KEPT = (Skip.UNREACHABLE, Skip.DENIED)
"""Reasons that show nothing about a page, so that its document stays."""
_MOST_ADDRESSES = 20
"""Most addresses to know, for each page that a crawl may request: links may be endless."""
_INDEX_NAMES = ("index.html", "index.htm")


@dataclass(frozen=True, slots=True)
class Limits:
    """Most addresses that a crawl requests, and most bytes of content that it reads.

    Files for crawlers, such as sitemaps, take at most half of these bytes.
    """

    pages: int = 1_000
    content_bytes: int = 2**30


@dataclass
class Crawl:
    """Visits the pages of a scope, breadth first, and takes each address once.

    Attributes:
        fetcher: sender of requests.
        robots: rules of the site.
        scope: part of the site.
        sizes: larger pages are skipped.
        limits: where the crawl ends.
        memory: pages of the last crawl, by address; unless the server says that a page has
            changed, its entry is taken over.
        keep: callback that keeps the content of a document, by its address.
        show: callback that shows the number of pages.
    """

    fetcher: Fetcher
    robots: Robots
    scope: Scope
    sizes: SizeLimits
    limits: Limits
    memory: Mapping[str, Page]
    keep: Callable[[str, bytes], None]
    show: Callable[[int], None]
    is_complete: bool = True
    pages: dict[str, Page] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._excluded: GitIgnoreSpec = self.scope.spec()
        self._queue: deque[str] = deque()
        self._seen: set[str] = set()
        self._requests = 0
        self._failures = 0
        self._is_down = False

    async def run(self, seeds: Iterable[URL], first: Response | None = None) -> None:
        """Visit the seeds and all pages that they lead to; ``first`` was requested already.

        The pages are taken in the order of the queue, so that a limit always has the same effect.
        """
        self._add(seeds)
        running: deque[asyncio.Task[Page]] = deque()
        try:
            while self._queue or running:
                while self._queue and len(running) < _AT_ONCE:
                    address = self._queue.popleft()
                    is_first = first is not None and str(first.url) == address
                    visit = self._visit(address, first if is_first else None)
                    running.append(asyncio.create_task(visit))
                self._take(await running.popleft())
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def listing(self) -> Listing:
        """Documents of the site, and the reason for each page that is none."""
        reasons = {address: self._reason(page) for address, page in self.pages.items()}
        files = {
            address: self.pages[address].fingerprint
            for address, reason in reasons.items()
            if reason is None
        }
        skipped = {address: reason for address, reason in reasons.items() if reason is not None}
        unread = {
            address
            for address, reason in skipped.items()
            if reason in _KEPT or reason is Skip.NOT_VISITED
        }
        # a crawl that did not see everything can't know that a page is gone unless it asked for it
        kept: Container[str] = frozenset(unread)
        if not self.is_complete:
            kept = AllBut.of(skipped.keys() - unread)
        return Listing(files, skipped, kept=kept)

    def remembered(self) -> dict[str, Page]:
        """Pages to know in the next crawl: those of this one, and those that it could not read."""
        unread = {
            address: page
            for address, page in self.memory.items()
            if not (self._was_read(address) or (self.is_complete and address not in self.pages))
        }
        return unread | {
            address: page
            for address, page in self.pages.items()
            if page.validators.headers() or page.fingerprint or page.links
        }

    def _was_read(self, address: str) -> bool:
        return address in self.pages and not self._is_unread(self.pages[address])

    @staticmethod
    def _is_unread(page: Page) -> bool:
        return page.skip in _KEPT or page.skip is Skip.NOT_VISITED

    def _add(self, urls: Iterable[URL]) -> None:
        for url in urls:
            address = self.scope.folded(url)
            if not self.scope.contains(address) or str(address) in self._seen:
                continue
            if self._excluded.match_file(address.path.lstrip("/")):
                continue
            if len(self._seen) >= _MOST_ADDRESSES * self.limits.pages:
                self.is_complete = False
                return
            self._seen.add(str(address))
            self._queue.append(str(address))

    async def _visit(self, address: str, response: Response | None) -> Page:
        """Request one address, unless a rule or a limit is against it."""
        url = URL(address, encoded=True)
        if is_asset(url):
            return Page(address, skip=Skip.MEDIA_TYPE)
        if not self.robots.allows(url):
            return Page(address, skip=Skip.ROBOTS)
        if self._is_down:
            return Page(address, skip=Skip.UNREACHABLE)
        if response is None and self._is_at_limit():
            return Page(address, skip=Skip.NOT_VISITED)
        self._requests += 1
        remembered = self.memory.get(address)
        try:
            if response is None:
                validators = remembered.validators if remembered else NO_VALIDATORS
                response = await self.fetcher.get(url, self._limit_of, validators)
            return self._read(address, response, remembered)
        except TooBusy:
            self._is_down = True
            return Page(address, skip=Skip.UNREACHABLE)
        except Unreachable:
            return Page(address, skip=Skip.UNREACHABLE)

    def _is_at_limit(self) -> bool:
        is_enough = self.fetcher.received_bytes >= self.limits.content_bytes
        return is_enough or self._requests >= self.limits.pages

    def _read(self, address: str, response: Response, remembered: Page | None) -> Page:
        if response.is_unchanged and remembered is not None:
            return remembered
        if response.status == _OK:
            page, raw = read_page(response)
            if page.skip is None:
                self.keep(address, raw)
            return page
        target = redirect_of(response)
        if target is not None:
            return Page(address, skip=Skip.ALIAS, target=str(self.scope.folded(target)))
        if response.status in _GONE:
            return Page(address, skip=Skip.GONE)
        is_error = response.status >= _SERVER_ERROR or response.is_unchanged
        return Page(address, skip=Skip.UNREACHABLE if is_error else Skip.DENIED)

    def _take(self, page: Page) -> None:
        """Record a visited page, and queue what it leads to."""
        self.pages[page.address] = page
        source = page
        if self._is_unread(page):
            source = self.memory.get(page.address, page)
            # a page that was never read has led to no document, unless nothing is remembered
            is_lost = page.skip is Skip.NOT_VISITED or not self.memory
            self.is_complete = self.is_complete and not is_lost
        self._failures = self._failures + 1 if page.skip is Skip.UNREACHABLE else 0
        if self._failures >= _MOST_FAILURES:
            self._is_down = True
        self.is_complete = self.is_complete and not self._is_down
        leads = (*source.links, source.canonical, source.target)
        self._add(url for link in leads if link and (url := to_address(link)) is not None)
        self.show(len(self.pages))

    def _reason(self, page: Page) -> Skip | None:
        """Reason why an address is not a document; None if it is."""
        if page.target:
            return self._reason_of_redirect(page)
        if page.skip is not None:
            return page.skip
        return Skip.ALIAS if self._is_alias(page) else None

    def _reason_of_redirect(self, page: Page) -> Skip:
        """Reason of a redirect, which is as unread as the page to which it leads."""
        for _ in range(MOST_HOPS):
            target = self.pages.get(page.target)
            if target is None:
                return Skip.OUTSIDE
            if not target.target:
                return Skip.UNREACHABLE if self._is_unread(target) else Skip.ALIAS
            page = target
        return Skip.ALIAS

    def _is_alias(self, page: Page) -> bool:
        """True if another address of the same page is a document.

        A page that names another address is believed if that has the same text, or differs only in
        its query: on some sites, all pages name the first one. Markdown for language models is left
        out beside its page, whose sections have addresses.
        """
        if any(self._is_document(address) for address in _html_of(page.address)):
            return True
        folder, _, name = page.address.rpartition("/")
        names = [f"{folder}/"] if name in _INDEX_NAMES else []
        for address in (page.canonical, *names):
            other = self._known(address)
            if other is None or other is page or other.skip is not None:
                continue
            is_same = other.fingerprint == page.fingerprint or _path(address) == _path(page.address)
            if is_same and other.canonical in ("", address):
                return True
        return False

    def _known(self, address: str) -> Page | None:
        """Page at an address; that of the last crawl, if this one could not read it."""
        page = self.pages.get(address)
        if page is None and self.is_complete:
            return None
        is_unread = page is None or self._is_unread(page)
        return self.memory.get(address, page) if is_unread else page

    def _is_document(self, address: str) -> bool:
        page = self._known(address)
        return page is not None and page.skip is None

    def _limit_of(self, url: URL, media_type: str) -> int:
        return self.sizes.of(str(url)) if is_readable(media_type) else 0


def _html_of(address: str) -> tuple[str, ...]:
    """Addresses of the page whose Markdown is at an address, as proposed with ``llms.txt``."""
    page = address.removesuffix(".md")
    return () if page == address else (page, f"{page}.html", f"{page}/")


def _path(address: str) -> str:
    return address.partition("?")[0]
