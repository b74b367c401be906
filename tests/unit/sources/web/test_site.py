"""Crawls of a site on this machine."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from runtime.errors import HeadraceError, Unavailable, UsageError
from sources import Skip, open_source
from sources.types import Change, SizeLimits
from sources.web.crawl import Limits
from sources.web.fetcher import Manners
from sources.web.site import SiteSource, open_site
from tests.support.syncs import LIMIT_BYTES, LIMITS, Synced, sync
from tests.support.website import HTML, Reply, Website, html, website

FAST = Manners(delay_seconds=0)


@pytest.fixture
def site() -> Iterator[Website]:
    with website() as site:
        site.page("/docs/", "The weir is low.", ["a.html", "b/c.html"])
        site.page("/docs/a.html", "The sluice is shut.", ["/docs/", "/elsewhere.html"])
        site.page("/docs/b/c.html", "The pond is full.", ["../a.html#top", "../a.html?utm_id=1"])
        yield site


def opened(site: Website, path: str = "/docs/", **options: Any) -> SiteSource:
    chosen: dict[str, Any] = {"manners": FAST, "allow_private": True} | options
    return open_site(site.url(path), **chosen)


def crawl(site: Website, before: Synced | None = None, **options: Any) -> tuple[list[str], Synced]:
    """Crawl and sync; returns the changes, such as ``upsert /docs/``, and the state."""
    full = options.pop("full", False)
    changes, after = sync(opened(site, **options), before or Synced(), full=full)
    return sorted(f"{change.change} {path_of(site, change)}" for change in changes), after


def path_of(site: Website, change: Change) -> str:
    return change.uri.removeprefix(site.origin)


def skipped(site: Website, after: Synced) -> dict[str, Skip]:
    paths = after.report.skipped_paths
    return {path.removeprefix(site.origin): reason for path, reason in paths.items()}


ALL = ["upsert /docs/", "upsert /docs/a.html", "upsert /docs/b/c.html"]
SEEDS = ["/llms.txt", "/docs/llms.txt", "/sitemap.xml"]


def test_a_second_crawl_reads_no_page(site: Website) -> None:
    """Each page is requested once, and then by its ETag; an edited and a gone page follow."""
    changes, first = crawl(site)
    assert changes == ALL
    assert {line.agent.partition("/")[0] for line in site.log} == {"headrace"}
    paths = [path for path, _ in site.requests()]
    assert paths[:-2] == ["/robots.txt", "/docs/", *SEEDS]
    assert set(paths[-2:]) == {"/docs/a.html", "/docs/b/c.html"}
    changes, second = crawl(site, first)
    assert (changes, second.report.unchanged) == ([], 3)
    assert second.state == first.state
    pages = {path: status for path, status in site.requests() if path.startswith("/docs/")}
    assert pages == {"/docs/": 304, "/docs/a.html": 304, "/docs/b/c.html": 304} | {SEEDS[1]: 404}
    site.page("/docs/a.html", "The sluice is open.")
    site.replies["/docs/b/c.html"] = Reply("gone", 410)
    changes, third = crawl(site, second)
    assert changes == ["delete /docs/b/c.html", "upsert /docs/a.html"]
    assert skipped(site, third) == {"/docs/b/c.html": Skip.GONE}
    site.page("/docs/", "The weir is low.")  # nothing links to a.html any more
    changes, fourth = crawl(site, third)
    assert changes == ["delete /docs/a.html"]
    assert crawl(site, fourth, full=True)[0] == ["upsert /docs/"]


def test_a_page_has_changed_only_if_its_text_has(site: Website) -> None:
    """A server without ETags is compared by what is read of a page, not by its bytes."""

    def varying(text: str) -> Reply:
        head = f"<meta name=nonce content={time.monotonic_ns()}>"
        return Reply(html(text, ["a.html", "b/c.html"], head=head), headers=HTML, plain=True)

    site.replies["/docs/"] = lambda: varying("The weir is low.")
    changes, first = crawl(site)
    assert changes == ALL
    changes, second = crawl(site, first)
    assert (changes, second.report.unchanged) == ([], 3)
    site.replies["/docs/"] = lambda: varying("The weir is high.")
    assert crawl(site, second)[0] == ["upsert /docs/"]


def test_errors_keep_documents_and_an_incomplete_crawl_deletes_nothing_unseen(
    site: Website,
) -> None:
    _, before = crawl(site)
    site.replies["/docs/a.html"] = Reply("down", 500)
    site.replies["/docs/b/c.html"] = Reply("forbidden", 403)
    changes, after = crawl(site, before)
    assert changes == []
    assert skipped(site, after) == {
        "/docs/a.html": Skip.UNREACHABLE,
        "/docs/b/c.html": Skip.DENIED,
    }
    assert crawl(site, before, limits=Limits(pages=1))[0] == []
    site.page("/docs/", "The weir is low.", ["new.html"])
    site.page("/docs/new.html", "New.")
    changes, after = crawl(site, before, limits=Limits(pages=1))
    assert changes == []
    assert skipped(site, after) == {"/docs/new.html": Skip.NOT_VISITED}
    # what an interrupted crawl did not reach is requested by the next one
    changes, after = crawl(site, after)
    assert changes == ["delete /docs/a.html", "delete /docs/b/c.html", "upsert /docs/new.html"]
    for reply in (Reply("down", 502), Reply("gone", 404)):
        site.replies["/docs/"] = reply
        with pytest.raises(HeadraceError, match=r"/docs/ (can't be read|does not exist)"):
            crawl(site, after)


def test_a_site_that_is_down_is_not_asked_for_every_page(site: Website) -> None:
    """After ten failures in a row, the rest counts as unreachable; robots.txt must be readable."""
    site.page("/docs/", "The weir is low.", [f"{number}.html" for number in range(30)])
    for number in range(30):
        site.page(f"/docs/{number}.html", f"Page {number}.")
    _, before = crawl(site)
    for number in range(30):
        site.replies[f"/docs/{number}.html"] = Reply("down", 500)
    site.requests()
    changes, after = crawl(site, before)
    assert (changes, after.report.skipped) == ([], {Skip.UNREACHABLE: 30})
    assert 10 <= [status for _, status in site.requests()].count(500) <= 12
    site.replies["/robots.txt"] = Reply("down", 503, {"Retry-After": "61"})
    with pytest.raises(Unavailable, match=r"robots\.txt can't be read"):
        crawl(site, after)


def test_pages_are_found_by_sitemaps_and_llms_txt(site: Website) -> None:
    """Sitemaps are those that robots.txt names, or the usual one; they may be packed."""
    index = "<sitemapindex xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>{}</sitemapindex>"
    urls = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>{}</urlset>"
    entry = "<{0}><loc>{1}</loc><lastmod>2026-01-01</lastmod></{0}>"
    site.replies["/robots.txt"] = Reply(f"Sitemap: {site.url('/maps/all.xml')}")
    nested = entry.format("sitemap", site.url("/maps/1.xml.gz"))
    site.replies["/maps/all.xml"] = Reply(index.format(nested))
    listed = "".join(
        entry.format("url", site.url(path)) for path in ("/docs/listed.html", "/other.html")
    )
    site.replies["/maps/1.xml.gz"] = Reply(gzip.compress(urls.format(listed).encode()))
    site.replies["/docs/llms.txt"] = Reply("# Mill\n- [Guide](named.md): how\n- [x](/out.md)")
    site.replies["/docs/named.md"] = Reply("# Named", headers={"Content-Type": "text/markdown"})
    site.page("/docs/listed.html", "Listed.")
    changes, before = crawl(site)
    assert changes == sorted([*ALL, "upsert /docs/listed.html", "upsert /docs/named.md"])
    # Markdown beside the page of the same name is another address of it
    site.page("/docs/named", "Named, with sections.")
    site.page("/docs/listed.html", "Listed.", ["named"])
    changes, before = crawl(site, before)
    assert changes == ["delete /docs/named.md", "upsert /docs/named"]
    # a sitemap that can't be read does not show that its pages are gone
    packed = gzip.compress(urls.format(listed).encode())
    for reply in (
        Reply("down", 500),
        Reply("forbidden", 403),
        Reply(packed[:-9]),
        Reply(packed[:10] + b"\xff" * 20),
    ):
        site.replies["/maps/1.xml.gz"] = reply
        assert crawl(site, before)[0] == []
    site.replies["/maps/1.xml.gz"] = Reply("gone", 404)
    assert crawl(site, before)[0] == [
        "delete /docs/listed.html",
        "delete /docs/named",
        "upsert /docs/named.md",
    ]


def test_one_document_for_many_addresses(site: Website) -> None:
    """Redirects, canonical links and index pages lead to one document of a page."""
    canonical = '<link rel="canonical" href="/docs/a.html">'
    same = '<link rel="canonical" href="/docs/">'
    links = ["index.html", "old.html", "loop1", "a.html?print=1", "twin.html", "other.html", "out"]
    site.page("/docs/", "The weir is low.", links)
    site.page("/docs/index.html", "The weir is low.", links)
    site.replies["/docs/old.html"] = Reply(status=301, headers={"Location": "/docs/a.html#x"})
    site.replies["/docs/loop1"] = Reply(status=302, headers={"Location": "loop2"})
    site.replies["/docs/loop2"] = Reply(status=302, headers={"Location": "loop1"})
    site.replies["/docs/out"] = Reply(status=302, headers={"Location": "http://example.org/"})
    site.page("/docs/a.html?print=1", "The sluice is shut. For print.", head=canonical)
    site.page("/docs/twin.html", "The sluice is shut.", head=canonical)
    site.page("/docs/other.html", "Every page of this site names the first one.", head=same)
    changes, after = crawl(site)
    assert changes == ["upsert /docs/", "upsert /docs/a.html", "upsert /docs/other.html"]
    assert skipped(site, after) == {
        "/docs/index.html": Skip.ALIAS,
        "/docs/old.html": Skip.ALIAS,
        "/docs/loop1": Skip.ALIAS,
        "/docs/loop2": Skip.ALIAS,
        "/docs/out": Skip.OUTSIDE,
        "/docs/a.html?print=1": Skip.ALIAS,
        "/docs/twin.html": Skip.ALIAS,
    }
    # a document that moves to an address with an error is kept where it was
    site.replies["/docs/a.html"] = Reply(status=301, headers={"Location": "/docs/new.html"})
    site.replies["/docs/new.html"] = Reply("down", 500)
    assert "delete /docs/a.html" not in crawl(site, after)[0]
    site.replies["/docs/new.html"] = Reply(html("The sluice moved."), headers=HTML)
    _, after = crawl(site, after)
    assert {site.url("/docs/new.html"), site.url("/docs/a.html")} - after.indexed.keys() == {
        site.url("/docs/a.html")
    }


def test_the_first_page_may_redirect_within_its_site(site: Website) -> None:
    """The scope is the folder to which it leads; another site has to be named."""
    site.replies["/"] = Reply(status=302, headers={"Location": "/docs/"})
    changes, before = crawl(site, path="/")
    assert changes == ALL
    site.page("/login/", "Name and password.")
    site.replies["/"] = Reply(status=302, headers={"Location": "/login/"})
    with pytest.raises(Unavailable, match="/login/, which is not among the pages of the last"):
        crawl(site, before, path="/")
    deletions = [change.replace("upsert", "delete") for change in ALL]
    assert crawl(site, before, path="/", full=True)[0] == sorted([*deletions, "upsert /login/"])
    site.replies["/"] = Reply(status=301, headers={"Location": "/login/"})
    assert crawl(site, before, path="/")[0] == sorted([*deletions, "upsert /login/"])
    site.replies["/"] = Reply(status=302, headers={"Location": "https://example.org/docs/"})
    with pytest.raises(UsageError, match=r"redirects to https://example\.org/docs/; name that"):
        crawl(site, path="/")


def test_the_rules_of_a_site_are_kept(site: Website) -> None:
    """robots.txt, noindex and nofollow count, also for pages that were documents before."""
    _, before = crawl(site)
    site.replies["/robots.txt"] = Reply("User-agent: headrace\nDisallow: /docs/b/")
    noindex = '<meta name="ROBOTS" content="max-snippet:-1, noindex">'
    nofollow = '<a rel="nofollow" href="hidden.html">hidden</a>'
    site.page("/docs/a.html", f"The sluice is shut. {nofollow}", head=noindex)
    site.page("/docs/", "The weir is low.", ["a.html", "b/c.html", "tagged", "end.html"])
    headers = HTML | {"X-Robots-Tag": "otherbot: nofollow, headrace: noindex"}
    site.replies["/docs/tagged"] = Reply(html("Tagged."), headers=headers)
    site.page("/docs/end.html", "End.", ["hidden.html"], head="<meta name=robots content=nofollow>")
    site.requests()
    changes, after = crawl(site, before)
    assert changes == [
        "delete /docs/a.html",
        "delete /docs/b/c.html",
        "upsert /docs/end.html",
    ]
    assert skipped(site, after) == {
        "/docs/a.html": Skip.NOINDEX,
        "/docs/b/c.html": Skip.ROBOTS,
        "/docs/tagged": Skip.NOINDEX,
    }
    asked = {path for path, _ in site.requests()}
    assert asked.isdisjoint({"/docs/b/c.html", "/docs/hidden.html"})
    site.replies["/robots.txt"] = Reply("User-agent: *\nDisallow: /")
    with pytest.raises(UsageError, match=r"robots\.txt does not allow"):
        crawl(site, after)


def test_the_pauses_of_a_site_are_kept(site: Website) -> None:
    """Two requests at once at most; Crawl-delay and Retry-After hold, by the server's log."""
    busy = iter(
        [Reply("busy", 429, {"Retry-After": "1"}), Reply("busy", 503, {"Retry-After": "0"})]
    )
    site.replies["/robots.txt"] = Reply("User-agent: *\nCrawl-delay: 0.1")
    page = site.replies["/docs/a.html"]
    assert isinstance(page, Reply)
    site.replies["/docs/a.html"] = lambda: next(busy, page)
    assert crawl(site)[0] == ALL
    # robots.txt comes first; the log of a busy machine may be late by a little
    times = [line.at for line in site.log[1:6]]
    assert times[-1] - times[0] >= 0.3, times
    busy_at, again_at, *_ = [line.at for line in site.log if line.path == "/docs/a.html"]
    assert again_at - busy_at >= 0.8
    assert site.most_at_once <= 2


def test_contents_are_taken_by_their_media_type(site: Website) -> None:
    """Text, Markdown and PDF are documents; pages in other character sets become UTF-8."""
    latin = html("Das Wehr ist höher.", head='<meta charset="iso-8859-1">').encode("latin-1")
    texts: dict[str, tuple[str, str | bytes]] = {
        "latin.html": ("text/html", latin),
        "header": ("text/html; charset=windows-1251", html("Шлюз").encode("cp1251")),
        "notes": ("text/plain", "Notes."),
        "guide": ("text/markdown; charset=utf-8", "# Guide"),
        "odd": ("text/\xe9", html("Odd.")),
        "long": ("x" * 64 + "/html", html("Long.")),
        "manual": ("application/pdf", b"%PDF-1.4\n\xff\0"),
        "api.json": ("application/json", '{\n  "openapi": "3.1.0",\n  "paths": {}\n}'),
        "data.json": ("application/json", '{"a": 1}'),
        "style": ("text/css", "p {}"),
        "blob": ("application/octet-stream", b"\0\1"),
        "chart.js": ("text/html", html("Chart.js draws. " * 500)),
        "mill.js": ("application/javascript", "start();"),
        "empty.html": ("text/html", "<html></html>"),
        "large.html": ("text/html", html("x" * LIMIT_BYTES)),
    }
    site.page("/docs/", "The weir is low.", [*texts, "logo.png"])
    for name, (media_type, body) in texts.items():
        site.replies[f"/docs/{name}"] = Reply(body, headers={"Content-Type": media_type})
    changes, after = sync(opened(site))
    bodies = {path_of(site, change): change for change in changes}
    assert sorted(path.rpartition("/")[2] for path in bodies) == sorted(
        [
            "",
            "latin.html",
            "header",
            "notes",
            "guide",
            "odd",
            "long",
            "manual",
            "api.json",
            "chart.js",
        ]
    )
    assert "höher" in str(bodies["/docs/latin.html"].content)
    assert "Шлюз" in str(bodies["/docs/header"].content)
    assert "iso-8859-1" not in str(bodies["/docs/latin.html"].content)
    assert bodies["/docs/manual"].content == b"%PDF-1.4\n\xff\0"
    for name in ("odd", "long"):
        details = bodies[f"/docs/{name}"].details
        assert details is not None
        assert details.media_type is None
    details = bodies["/docs/guide"].details
    assert details is not None
    assert details.media_type == "text/markdown"
    assert details.permalink_template == site.url("/docs/guide#{fragment}")
    reasons = {path.removeprefix("/docs/"): reason for path, reason in skipped(site, after).items()}
    assert reasons == {
        "data.json": Skip.MEDIA_TYPE,
        "style": Skip.MEDIA_TYPE,
        "blob": Skip.MEDIA_TYPE,
        "logo.png": Skip.MEDIA_TYPE,
        "mill.js": Skip.MEDIA_TYPE,
        "empty.html": Skip.EMPTY,
        "large.html": Skip.OVERSIZED,
    }


def test_compressed_content_is_bounded(site: Website) -> None:
    """A small response that unpacks to a large page is cut off; damaged ones are errors."""
    packed = {"Content-Encoding": "gzip", **HTML}
    site.page("/docs/", "The weir is low.", ["good", "bomb", "cut", "brotli"])
    good = gzip.compress(html("Packed.").encode())
    site.replies["/docs/good"] = Reply(good, headers=packed)
    site.replies["/docs/bomb"] = Reply(gzip.compress(b" " * 10**7), headers=packed)
    site.replies["/docs/cut"] = Reply(good[:-9], headers=packed)
    site.replies["/docs/brotli"] = Reply(good, headers=packed | {"Content-Encoding": "br"})
    changes, after = crawl(site)
    assert changes == ["upsert /docs/", "upsert /docs/good"]
    assert skipped(site, after) == {
        "/docs/bomb": Skip.OVERSIZED,
        "/docs/cut": Skip.UNREACHABLE,
        "/docs/brotli": Skip.UNREACHABLE,
    }


def test_an_unchanged_page_whose_change_was_lost_is_read_again(site: Website) -> None:
    """A crawl that was killed before it published has remembered pages that the index lacks.

    The pause of the site is kept, and what is no longer a document is not published.
    """
    site.replies["/robots.txt"] = Reply("User-agent: *\nCrawl-delay: 0.1")
    page = site.replies["/docs/b/c.html"]
    assert isinstance(page, Reply)
    source = opened(site)
    source.recall({}, lambda _: None, full=False)
    memory = source.list(LIMITS).memory
    state = Synced().state
    state.memory = memory
    site.requests()
    changes, after = crawl(site, Synced(state))
    assert changes == ALL
    times = [line.at for line in site.log if line.path.startswith("/docs/") and line.status == 200]
    assert len(times) == 3
    assert times[-1] - times[0] >= 0.2
    statuses = [status for path, status in site.requests() if path == "/docs/a.html"]
    assert statuses == [304, 200]
    assert crawl(site, after)[0] == []
    emptied = iter([Reply("", 304), Reply("<html></html>", headers=HTML)])
    site.replies["/docs/b/c.html"] = lambda: next(emptied, page)
    assert crawl(site, Synced(state))[0] == ALL[:2]


def test_a_crawl_can_be_stopped(site: Website) -> None:
    """``stop`` ends a crawl that waits for its server."""
    entered = threading.Event()
    released = threading.Event()

    def blocked() -> Reply:
        entered.set()
        released.wait(30)
        return Reply("late")

    site.replies["/docs/a.html"] = blocked
    source = opened(site)

    def stop() -> None:
        entered.wait(30)
        source.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        with pytest.raises(Unavailable, match="was stopped"):
            source.list(LIMITS)
    finally:
        released.set()
        stopper.join()


PRIVATE_HOSTS = """
    127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0x7f.1 0177.0.0.1 017700000001
    0300.0250.1.1 0 0.0.0.0 10.1.2.3 172.16.5.4 192.168.0.1 169.254.169.254 2852039166
    0xa9fea9fe 100.100.100.200 [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1]
    [64:ff9b::7f00:1] [2002:7f00:1::] [fd00:ec2::254] [fe80::1] localhost localhost. LOCALHOST
    \uff11\uff12\uff17.0.0.1 127\u30020\u30020\u30021 internal.example rebound.example"""


def test_no_form_of_a_private_address_is_requested(
    site: Website, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is made with the address of the connection, after every look-up of a name."""
    port = int(site.origin.rpartition(":")[2])
    answers = {"internal.example": iter(["10.0.0.7"] * 9), "rebound.example": iter(["127.0.0.1"])}
    look_up = socket.getaddrinfo

    def answer(host: str | bytes | None, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host or ""
        address = next(answers[name], "93.184.216.34") if name in answers else host
        return look_up(address, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    connected: list[Any] = []
    connect = socket.socket.connect

    def record(self: socket.socket, address: Any) -> None:
        connected.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", record)
    assert len(PRIVATE_HOSTS.split()) >= 30
    for host in PRIVATE_HOSTS.split():
        source = open_site(f"http://{host}:{port}/docs/", manners=FAST)
        with pytest.raises(HeadraceError, match=r"not a (public|canonical IPv4) address"):
            source.list(LIMITS)
    assert (site.log, connected) == ([], [])
    for url in (
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "ftp://example.org/",
        "http://ana:secret@example.org/",
        "//example.org/",
    ):
        with pytest.raises(UsageError, match="is not the address of a page") as refusal:
            open_site(url)
        assert "secret" not in str(refusal.value)
    with pytest.raises(UsageError, match="publish its pages by `headrace crawl`"):
        open_source("https://docs.example.org/")


def test_a_redirect_does_not_lead_into_a_private_network(site: Website) -> None:
    """Only the host that is named with ``--allow-private`` may be private, not another one."""
    with website() as other:
        other.page("/docs/", "Secret.")
        for location in (
            other.url("/docs/"),
            other.url("/docs/").replace("127.0.0.1", "localhost"),
        ):
            site.replies["/docs/a.html"] = Reply(status=302, headers={"Location": location})
            changes, after = crawl(site)
            assert skipped(site, after) == {"/docs/a.html": Skip.OUTSIDE}
            assert "upsert /docs/a.html" not in changes
            site.replies["/robots.txt"] = Reply(status=302, headers={"Location": location})
            with pytest.raises(UsageError, match="is not a public address; add --allow-private"):
                crawl(site)
            del site.replies["/robots.txt"]
            site.replies["/start"] = Reply(status=302, headers={"Location": location})
            with pytest.raises(HeadraceError, match=r"public address|redirects to"):
                crawl(site, path="/start")
        assert other.log == []


def test_endless_links_end(site: Website) -> None:
    """A site that makes up pages is crawled up to the limit, and only so much is remembered."""
    numbers = iter(range(10**6))

    def endless() -> Reply:
        links = [f"{next(numbers)}.html" for _ in range(100)]
        site.replies |= {f"/docs/{link}": endless for link in links}
        return Reply(html(f"Page {links[0]}", links), headers=HTML)

    site.replies["/docs/"] = endless
    _, after = crawl(site, limits=Limits(pages=10))
    assert (after.report.published, after.report.found) == (10, 200)
    assert after.report.skipped == {Skip.NOT_VISITED: 190}


def test_the_limit_of_bytes_ends_a_crawl(site: Website) -> None:
    changes, after = crawl(site, limits=Limits(content_bytes=1))
    assert changes == ["upsert /docs/"]
    assert after.report.skipped == {Skip.NOT_VISITED: 2}
    sizes = SizeLimits(LIMIT_BYTES, LIMIT_BYTES)
    source = opened(site, scope="/docs/b/", exclude=["c.html"])
    with pytest.raises(UsageError, match="no page that can be indexed"):
        source.list(sizes)


def test_sitemaps_count_for_the_limit_of_bytes(site: Website) -> None:
    """They take at most half of it, and pages that only the unread ones name stay."""
    urls = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>{}{}</urlset>"
    named = f"<url><loc>{site.url('/docs/named.html')}</loc></url>"
    paths = [f"/maps/{number}.xml" for number in range(4)]
    for path in paths:
        site.replies[path] = Reply(urls.format(named, " " * 10_000))
    site.replies["/robots.txt"] = Reply("".join(f"Sitemap: {site.url(path)}\n" for path in paths))
    site.page("/docs/named.html", "Named.")
    _, before = crawl(site)
    assert before.report.published == len(ALL) + 1
    for path in paths:
        site.replies[path] = Reply(urls.format("", " " * 10_000))
    changes, after = crawl(site, before, limits=Limits(content_bytes=30_000))
    assert (changes, after.report.unchanged, after.report.skipped) == ([], 3, {})
    assert crawl(site, before)[0] == ["delete /docs/named.html"]
