"""Main part of a page: the elements to read, and those in them to leave out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode

from content.extractors.html.inline import DROPPED_TAGS, inline_text, is_note

__all__ = ["MainPart", "main_part", "whole_page"]

_MAIN = ("main", "[role=main]")
_CONTENT = (
    "#main-content",
    "#content",
    ".markdown-body",
    ".document .body",
    ".content",
    "#main",
)
_SELECTORS = (*_MAIN, "article", *_CONTENT)
_SELECTORS_OF_ARTICLES = ("[itemprop=articleBody]", "article", *_MAIN, *_CONTENT)
_DROPPED = (
    "nav, header, footer, aside, form, dialog, [role=navigation], [role=search], [role=banner], "
    "[role=contentinfo], [aria-hidden=true], .headerlink, .sphinxsidebar, .related, .breadcrumb, "
    ".breadcrumbs, .navheader, .navfooter, .toc-tree, .sidebar, .linenos, .lineno, .line-numbers, "
    ".mw-editsection, .mw-jump-link"
)
_UNREAD = "script, style, noscript, template"
_DECLARED_ARTICLE = re.compile(
    r"<meta[^>]{1,100}og:type[^>]{1,60}[\"'](?:article|news)[\"']"
    r"|<meta[^>]{1,60}property=[\"']article:published_time[\"']"
    r"|itemtype=[\"']https?://schema\.org/(?:NewsArticle|Article|BlogPosting)[\"']"
    r"|\"@type\"\s{0,9}:\s{0,9}(?:\[\s{0,9})?\"(?:(?:Reportage)?NewsArticle|BlogPosting)\"",
    re.IGNORECASE,
)
"""Metadata by which news sites and blogs declare a page to be an article."""
_SIGNS_OF_ARTICLES = (b"og:type", b"article:published_time", b"schema.org/", b'"@type"')
"""Parts of it, one of which is in each match, and which are found in less time."""
_AROUND_SIGN = 600  # bytes before and after a sign, between which its match lies
_MOST_SIGNS = 50  # more are searched for as a whole
_AROUND_NAMES = (
    r"(?:comments?|share|sharing|social|related|recommend\w*|promo\w*|newsletter|cookie\w*"
    r"|subscribe|subscription|advert\w*|ads?|breadcrumbs?|footer|sidebar|side-bar|menu|nav|navbar"
    r"|navigation|popup|modal|banner|login|signup|sponsor\w*|outbrain|taboola|byline|author-bio"
    r"|tags?|meta|most-read|trending|widget)(?:[\s_-]|$)"
)
"""Names of blocks that stand around the text of a page."""
_AROUND_CLASS = re.compile(rf"(?:^|[\s_-]){_AROUND_NAMES}", re.IGNORECASE)
_AROUND_ID = re.compile(_AROUND_NAMES, re.IGNORECASE)
_PRUNED = frozenset(["div", "section", "ul", "ol", "table", "p", "dl", "figure", "span"])
_BOXES = frozenset(["div", "section", "ul", "ol", "table", "dl"])
_CODE = frozenset({"pre", "code"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_FEWEST_CHARACTERS = 200
_SHARE_OF_MAIN = 0.2
_SHARE_OF_PRUNED = 0.4
_SHARE_OF_LINKS = 0.55
_SHARE_OF_FORM = 0.5
_SHARE_OF_ARTICLE = 0.5
_MOST_PRUNED_CHARACTERS = 3_000
_MOST_TITLE_BLOCK_CHARACTERS = 2_000
_MOST_CANDIDATES = 20


@dataclass(frozen=True, slots=True)
class MainPart:
    """Elements to read, in order, and ``mem_id`` of the elements in them to leave out."""

    roots: Sequence[LexborNode]
    dropped: frozenset[int]


def whole_page(tree: LexborHTMLParser) -> MainPart:
    """Return the whole body, for pages without navigation such as a chapter or a message."""
    return MainPart([tree.body] if tree.body is not None else [], frozenset())


def main_part(tree: LexborHTMLParser, source: str) -> MainPart:
    """Choose the main element of a page, and what to leave out of it.

    It is the largest of the elements that pages mark as their main one, if that holds a fifth of
    the text, else the body. Navigation, forms and the like are left out. Where nothing is marked,
    and in articles of news sites, so are blocks that are named like advertising or comments, and
    boxes of links.

    Args:
        tree: parsed page.
        source: text of the page, in which articles are declared.
    """
    body = tree.body
    if body is None:
        return MainPart([], frozenset())
    is_article = _is_article(source)
    marked = _marked(body, _SELECTORS_OF_ARTICLES if is_article else _SELECTORS)
    main = marked if marked is not None else body
    dropped = {node.mem_id for node in _left_out(main)}
    if marked is None or is_article:
        dropped |= _Pruning(main, dropped, keep_sections=not is_article).pruned
    title_block = _title_block(tree, main, dropped)
    roots = [main] if title_block is None else [title_block, main]
    if title_block is not None:
        dropped.update(node.mem_id for node in _left_out(title_block))
        dropped.discard(title_block.mem_id)
    return MainPart(roots, frozenset(dropped))


def _is_article(source: str) -> bool:
    """Search for the metadata of an article near its signs only, since that takes less time."""
    raw = source.encode("utf-8", "replace").lower()
    if sum(map(raw.count, _SIGNS_OF_ARTICLES)) > _MOST_SIGNS:
        return _DECLARED_ARTICLE.search(source) is not None
    for sign in _SIGNS_OF_ARTICLES:
        position = raw.find(sign)
        while position >= 0:
            around = raw[max(0, position - _AROUND_SIGN) : position + _AROUND_SIGN]
            if _DECLARED_ARTICLE.search(around.decode("utf-8", "ignore")):
                return True
            position = raw.find(sign, position + 1)
    return False


def _marked(body: LexborNode, selectors: Sequence[str]) -> LexborNode | None:
    """Return the first kind of main element that holds enough text, and the largest of its kind."""
    total = _characters(body)
    for selector in selectors:
        candidates = body.css(selector)[:_MOST_CANDIDATES]
        if not candidates:
            continue
        sizes = [_characters(candidate) for candidate in candidates]
        size = max(sizes)
        if selector == "article" and size < _SHARE_OF_ARTICLE * sum(sizes):
            continue  # a list of articles, none of which is the main one
        enough = _SHARE_OF_MAIN * total
        if selector in _MAIN:
            enough = min(enough, _FEWEST_CHARACTERS)
        if size and size >= enough:
            return candidates[sizes.index(size)]
    return None


def _characters(node: LexborNode) -> int:
    """Characters of text in an element, about; scripts do not count."""
    unread = sum(len(inner.text(deep=True)) for inner in node.css(_UNREAD))
    return max(0, len(node.text(deep=True)) - unread)


def _left_out(root: LexborNode) -> Iterator[LexborNode]:
    """Yield the elements that hold no text of the page itself."""
    characters: int | None = None  # of the root, which are counted once
    for node in root.css(_DROPPED):
        if node.mem_id == root.mem_id:
            continue
        if node.tag == "header" and _is_inside(node, {"main", "article"}):
            yield from (box for box in node.css("ul, ol") if _is_of_links(box))
            continue
        if node.tag == "aside" and is_note(node):
            continue
        if node.tag == "form":
            characters = _characters(root) if characters is None else characters
            if _characters(node) > _SHARE_OF_FORM * characters:
                continue
        yield node


def _is_of_links(box: LexborNode) -> bool:
    links = sum(len(link.text(deep=True).strip()) for link in box.css("a"))
    return links > _SHARE_OF_LINKS * len(" ".join(box.text(deep=True).split()))


def _is_inside(node: LexborNode, tags: set[str]) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.tag in tags:
            return True
        parent = parent.parent
    return False


def _title_block(tree: LexborHTMLParser, main: LexborNode, dropped: set[int]) -> LexborNode | None:
    """Return the block before ``main`` with the first heading. Returns None if ``main`` has one.

    The heading must agree with the title of the page, since others name the site. A block with
    more than a heading and a few lines is not taken as a whole.
    """
    title = tree.css_first("head title")
    words = _words(title.text(deep=True)) if title is not None else set()
    if any(not _is_dropped(heading, dropped) for heading in main.css("h1")):
        return None
    for heading in tree.css("h1")[:_MOST_CANDIDATES]:
        own = _words(inline_text(heading, ()))
        if own and len(own & words) * 2 > min(len(own), len(words)):
            block = _block_of(heading, main)
            is_small = _characters(block) <= _MOST_TITLE_BLOCK_CHARACTERS
            is_text = block.tag == "div" and block.css_first("nav, a, form") is None
            return block if is_small and is_text else heading
    return None


def _block_of(node: LexborNode, main: LexborNode) -> LexborNode:
    """Return the outermost element around ``node`` that does not contain ``main``."""
    around_main = {main.mem_id}
    parent = main.parent
    while parent is not None:
        around_main.add(parent.mem_id)
        parent = parent.parent
    while node.parent is not None and node.parent.mem_id not in around_main:
        node = node.parent
    return node


def _is_dropped(node: LexborNode, dropped: set[int]) -> bool:
    current: LexborNode | None = node
    while current is not None:
        if current.mem_id in dropped:
            return True
        current = current.parent
    return False


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


class _Count:
    """Letters of an open element."""

    __slots__ = ("has_code", "has_heading", "has_pre", "letters", "link_letters", "node", "tag")

    def __init__(self, node: LexborNode, tag: str) -> None:
        self.node = node
        self.tag = tag
        self.letters = 0
        self.link_letters = 0
        self.has_pre = tag == "pre"
        self.has_code = tag in _CODE
        self.has_heading = tag in _HEADINGS


class _Pruning:
    """Blocks around the text, by their names and by their links.

    With ``keep_sections`` blocks that hold a heading are kept: it may be a section that is only
    named like advertising, or that consists of links.
    """

    def __init__(self, root: LexborNode, dropped: set[int], *, keep_sections: bool) -> None:
        self.pruned: set[int] = set()
        self._candidates: list[_Count] = []
        total = self._count(root, dropped)
        for candidate in self._candidates:
            if keep_sections and candidate.has_heading:
                continue
            if candidate.letters <= _SHARE_OF_PRUNED * total and self._is_around(candidate):
                self.pruned.add(candidate.node.mem_id)

    def _count(self, root: LexborNode, dropped: set[int]) -> int:
        """Count the letters of all elements in one pass. Returns those of ``root``."""
        open_counts = [_Count(root, root.tag or "")]
        node = root.child
        while node is not None:
            tag = node.tag or ""
            child = None
            if tag == "-text":
                open_counts[-1].letters += len((node.text_content or "").strip())
            elif tag not in DROPPED_TAGS and tag[:1] not in "-_!" and node.mem_id not in dropped:
                child = node.child
            if child is not None:
                open_counts.append(_Count(node, tag))
                node = child
                continue
            following = node.next
            while following is None and len(open_counts) > 1:
                count = open_counts.pop()
                self._close(count, open_counts[-1])
                following = count.node.next
            node = following
        return open_counts[0].letters

    def _close(self, count: _Count, parent: _Count) -> None:
        if count.tag == "a":
            count.link_letters = count.letters
        parent.letters += count.letters
        parent.link_letters += count.link_letters
        parent.has_pre |= count.has_pre
        parent.has_code |= count.has_code
        parent.has_heading |= count.has_heading
        if count.tag in _PRUNED:
            self._candidates.append(count)

    @staticmethod
    def _is_around(count: _Count) -> bool:
        attributes = count.node.attributes
        is_named = _AROUND_CLASS.search(attributes.get("class") or "") or _AROUND_ID.match(
            attributes.get("id") or ""
        )
        if is_named and not count.has_pre:
            return True
        return (
            count.tag in _BOXES
            and not count.has_code
            and count.letters < _MOST_PRUNED_CHARACTERS
            and count.link_letters > _SHARE_OF_LINKS * count.letters
        )
