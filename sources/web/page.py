"""Page of a site as a crawl sees it: its text, its links, and what it says of itself."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from selectolax.lexbor import LexborHTMLParser
from yarl import URL

from content.detection import detect
from content.extractors.charsets import codec_of, declared_in, decode
from content.extractors.html.page import extract, parse
from content.registry import EXTRACTORS
from runtime.errors import Poison
from sources.types import Skip
from sources.web.addresses import to_address
from sources.web.fetcher import NO_VALIDATORS, Response, Validators
from sources.web.seeds import AGENT

__all__ = ["Page", "is_readable", "pack_pages", "read_page", "unpack_pages"]

_VERSION = 1
"""Increase this with each change of how pages are read, so that they are requested again."""

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXTS = frozenset(
    {"text/plain", "text/markdown", "text/x-markdown", "text/x-rst", "text/prs.fallenstein.rst"}
)
_UNREAD_TYPES = (
    *("image/", "audio/", "video/", "font/", "text/css"),
    *("text/javascript", "application/javascript", "application/x-javascript"),
)
_VALUED = frozenset({"max-snippet", "max-image-preview", "max-video-preview", "unavailable_after"})
"""Directives with a value after a colon; any other word before a colon names a crawler."""
_NOT_FOLLOWED = frozenset({"nofollow", "ugc", "sponsored"})
_CHARSET = re.compile(r"(charset\s*=\s*[\"']?\s*|encoding\s*=\s*[\"'])[\w.:-]{2,40}", re.IGNORECASE)
_CHARSET_PARAMETER = re.compile(r";\s*charset\s*=\s*\"?([\w.:-]{2,40})", re.IGNORECASE)
_REFRESH = re.compile(r"\s*\d{1,2}\s*[;,]\s*url\s*=\s*[\"']?([^\"'\s]+)", re.IGNORECASE)
_CANONICAL = re.compile(r"<([^>]{1,2000})>\s*;[^,]{0,100}\brel\s*=\s*\"?canonical\b", re.IGNORECASE)
_HEAD_CHARACTERS = 4_096
_MOST_LINKS = 5_000


@dataclass(frozen=True, slots=True)
class Page:
    """Result of the request of an address.

    Attributes:
        validators: values for the next request.
        skip: reason why it is not a document; None if it is.
        fingerprint: digest of the text of a document.
        canonical: address that it names as its own; empty if it names none.
        target: address to which it redirects; empty if it does not.
        links: addresses to which it links, in its order.
    """

    address: str
    validators: Validators = NO_VALIDATORS
    skip: Skip | None = None
    fingerprint: str = ""
    media_type: str = ""
    canonical: str = ""
    target: str = ""
    links: tuple[str, ...] = ()


def is_readable(media_type: str) -> bool:
    """False if no content of this media type is a document."""
    return not media_type.startswith(_UNREAD_TYPES)


def read_page(response: Response) -> tuple[Page, bytes]:
    """Read a page from its response with status 200; returns it with its content.

    The content of HTML is converted to UTF-8.
    """
    url, media_type, raw = response.url, response.media_type, response.raw
    page = Page(str(url), response.validators, media_type=media_type)
    if response.is_oversized:
        return replace(page, skip=Skip.OVERSIZED), b""
    if not is_readable(media_type):
        return replace(page, skip=Skip.MEDIA_TYPE), b""
    directives = _directives(response.headers.get("X-Robots-Tag", ""))
    canonical = _CANONICAL.search(response.headers.get("Link", ""))
    page = replace(page, canonical=_text_of(canonical[1] if canonical else None, url))
    if media_type in _HTML:
        raw = _as_utf8(raw, response.headers.get("Content-Type", ""))
        page, own_directives = _read_html(page, url, raw)
        directives |= own_directives
    else:
        page = replace(page, skip=_skip_of(str(url), media_type, raw))
        page = replace(page, fingerprint=hashlib.sha256(raw).hexdigest()[:32])
    if "nofollow" in directives:
        page = replace(page, links=())
    if "noindex" in directives and page.skip is None:
        page = replace(page, skip=Skip.NOINDEX)
    return page, raw


def pack_pages(pages: Mapping[str, Page]) -> dict[str, Any]:
    """Convert pages to a JSON object in which each address stands once."""
    index: dict[str, int] = {}

    def number(address: str) -> int:
        return index.setdefault(address, len(index))

    rows = [
        [
            number(page.address),
            page.validators.etag,
            page.validators.modified,
            page.skip and page.skip.value,
            page.fingerprint,
            page.media_type,
            number(page.canonical),
            [number(link) for link in page.links],
        ]
        for page in pages.values()
    ]
    return {"version": _VERSION, "addresses": list(index), "pages": rows}


def unpack_pages(packed: Mapping[str, Any]) -> dict[str, Page]:
    """Inverse of ``pack_pages``; returns no pages for another version."""
    if packed.get("version") != _VERSION:
        return {}
    addresses = packed["addresses"]
    pages = (
        Page(
            addresses[address],
            Validators(etag, modified),
            Skip(skip) if skip else None,
            fingerprint,
            media_type,
            addresses[canonical],
            "",
            tuple(addresses[link] for link in links),
        )
        for address, etag, modified, skip, fingerprint, media_type, canonical, links in packed[
            "pages"
        ]
    )
    return {page.address: page for page in pages}


def _read_html(page: Page, url: URL, raw: bytes) -> tuple[Page, set[str]]:
    """Read a page of HTML; returns it with its directives for crawlers."""
    try:
        rendition = extract(raw)
        tree = parse(raw.decode("utf-8", "replace"))
    except Poison:
        return replace(page, skip=Skip.UNREADABLE), set()
    base_node = tree.css_first("base[href]")
    base = (to_address(_attribute(base_node, "href"), url) if base_node else None) or url
    links = dict.fromkeys(_links(tree, base))
    refresh = _refresh(tree, base)
    if refresh:
        links = {refresh: None}
    node = tree.css_first("link[rel~=canonical]")
    canonical = _text_of(_attribute(node, "href"), base) if node else page.canonical
    text = "\n".join([rendition.title or "", *rendition.lines])
    is_empty = not any(line.strip() for line in rendition.lines)
    page = replace(
        page,
        skip=Skip.ALIAS if refresh else Skip.EMPTY if is_empty else None,
        fingerprint=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32],
        canonical=canonical,
        links=tuple(links)[:_MOST_LINKS],
    )
    nodes = tree.css(f"meta[name=robots i], meta[name={AGENT} i]")
    return page, set().union(*(_directives(_attribute(node, "content")) for node in nodes))


def _links(tree: LexborHTMLParser, base: URL) -> Iterator[str]:
    for node in tree.css("a[href], area[href]"):
        if _NOT_FOLLOWED.isdisjoint(_attribute(node, "rel").lower().split()):
            link = _text_of(_attribute(node, "href"), base)
            if link:
                yield link


def _refresh(tree: LexborHTMLParser, base: URL) -> str:
    """Address to which a page sends its reader at once; empty if it does not."""
    node = tree.css_first("meta[http-equiv=refresh i]")
    match = _REFRESH.match(_attribute(node, "content")) if node else None
    target = _text_of(match[1], base) if match else ""
    return "" if target == str(base) else target


def _attribute(node: Any, name: str) -> str:
    return node.attributes.get(name) or ""


def _text_of(link: str | None, base: URL) -> str:
    address = to_address(link, base) if link else None
    return "" if address is None else str(address)


def _directives(text: str) -> set[str]:
    """Directives for all crawlers or for this one; ``none`` stands for two."""
    agent = "*"
    words: set[str] = set()
    for part in text.lower().split(","):
        name, colon, value = (word.strip() for word in part.partition(":"))
        if colon and name not in _VALUED:
            agent = name
            name = value
        if agent in ("*", AGENT):
            words.add(name)
    return words | ({"noindex", "nofollow"} if "none" in words else set())


def _as_utf8(raw: bytes, content_type: str) -> bytes:
    """Content in UTF-8, with a declaration that says so."""
    parameter = _CHARSET_PARAMETER.search(content_type)
    declared = declared_in(raw)
    decoded = decode(raw, parameter[1] if parameter else declared)
    if decoded.codec == "utf-8" and codec_of(declared) in (None, "utf-8"):
        return raw
    head, rest = decoded.text[:_HEAD_CHARACTERS], decoded.text[_HEAD_CHARACTERS:]
    return (_CHARSET.sub(r"\1utf-8", head) + rest).encode("utf-8", "replace")


def _skip_of(uri: str, media_type: str, raw: bytes) -> Skip | None:
    """Reason why content that is not HTML is not a document."""
    if not raw.strip():
        return Skip.EMPTY
    try:
        kind = detect(uri, media_type, raw).kind
    except Poison:
        return Skip.MEDIA_TYPE
    return None if kind in EXTRACTORS or media_type in _TEXTS else Skip.MEDIA_TYPE
