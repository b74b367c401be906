"""Extractor of HTML pages."""

from __future__ import annotations

import re
from collections import Counter

from selectolax.lexbor import LexborHTMLParser

from content.extractors.charsets import declared_in, decode
from content.extractors.draft import Draft, cleaned
from content.extractors.html.inline import inline_text
from content.extractors.html.main_node import MainPart, main_part, whole_page
from content.extractors.html.walk import PlaceOf, Walk
from content.rendition import Place, Rendition
from runtime.errors import Damaged, LimitExceeded

__all__ = ["extract", "parse", "put_page"]

MOST_ELEMENTS = 250_000
MOST_UNCLOSED = 2_000
_FEW_ELEMENTS = 20_000
_FEWEST_CHARACTERS = 200
_MOST_ID_CHARACTERS = 200
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]{0,40})")
_VOID_NAMES = "area base br col embed hr img input link meta param source track wbr"
_VOID = frozenset(_VOID_NAMES.split())
_OPTIONAL_END = "colgroup dd dt li option optgroup p rp rt tbody td tfoot th thead tr"
_CLOSED_BY_OTHERS = _VOID | frozenset(_OPTIONAL_END.split())
_SELF_CLOSED = re.compile(r"<([a-zA-Z][\w:-]{0,40})((?:\s[^<>]*?)?)/>")
_SITE = re.compile(r"\s+(?:[-|:·•»«\u2013\u2014]|::)\s+")


def extract(raw: bytes) -> Rendition:
    """Return the main part of a page. Each line has the id of the heading or term above it.

    Raises:
        Damaged: the bytes are not text.
        LimitExceeded: the page has more than 250,000 elements, is nested too deeply, or has more
            than 8 MiB of text.
    """
    decoded = decode(raw, declared_in(raw))
    if decoded.text.count("\0") * 10 > len(decoded.text):
        raise Damaged("the bytes are not the text of a page", "publish it with its own media type")
    draft = Draft()
    title = put_page(draft, decoded.text, lambda identifier, _: Place(fragment=identifier))
    if decoded.doubtful:
        draft.warn(f"not all of its bytes fit its character set; it was read as {decoded.codec}")
    if sum(map(len, draft.lines)) < _FEWEST_CHARACTERS and "<script" in decoded.text:
        draft.warn(f"less than {_FEWEST_CHARACTERS} characters of text; a script may add the rest")
    return draft.rendition(title)


def put_page(
    draft: Draft,
    text: str,
    place_of: PlaceOf,
    *,
    main_only: bool = True,
    shift: int = 0,
    small_tables: bool = False,
) -> str | None:
    """Append a page to a draft, and return its title, or None if it has none.

    Args:
        draft: draft that receives the lines.
        text: source of the page.
        place_of: place of the lines below a heading or a term.
        main_only: leave out navigation and what else stands around the text.
        shift: added to the levels of the page's headings.
        small_tables: read tables with a single column as data too.

    Raises:
        LimitExceeded: as for ``extract``.
    """
    tree = parse(text)
    part: MainPart = main_part(tree, text) if main_only else whole_page(tree)
    first_section = len(draft.sections)

    def bounded(identifier: str, path: tuple[str, ...]) -> Place:
        return place_of(" ".join(cleaned(identifier).split())[:_MOST_ID_CHARACTERS], path)

    walk = Walk(draft, bounded, part.dropped, shift=shift, small_tables=small_tables)
    for root in part.roots:
        walk.run(root)
    top = next((section for section in draft.sections[first_section:] if section.level == 1), None)
    return top.name if top is not None else _title(tree)


def parse(text: str) -> LexborHTMLParser:
    """Parse a page whose size is within the limits.

    Raises:
        LimitExceeded: there are more than 250,000 elements, or more than 2,000 that nothing closes.
    """
    text = cleaned(text)
    elements = text.count("<")
    if elements > 2 * MOST_ELEMENTS:
        raise LimitExceeded(
            f"the page has more than {MOST_ELEMENTS:,} elements", "publish it in parts"
        )
    if elements > _FEW_ELEMENTS:
        _refuse_deep(text)
    if text.lstrip()[:5] == "<?xml":
        text = _SELF_CLOSED.sub(_opened_and_closed, text)
    return LexborHTMLParser(text)


def _refuse_deep(text: str) -> None:
    """Refuse a page that takes too long to parse: each tag searches the elements that are open."""
    balance: Counter[str] = Counter()
    for closing, name in _TAG.findall(text):
        balance[name.lower()] += -1 if closing else 1
    unclosed = sum(
        count for name, count in balance.items() if count > 0 and name not in _CLOSED_BY_OTHERS
    )
    if unclosed > MOST_UNCLOSED:
        raise LimitExceeded(
            f"the page has more than {MOST_UNCLOSED:,} elements that nothing closes",
            "publish its text in another format",
        )


def _opened_and_closed(match: re.Match[str]) -> str:
    """Write ``<a/>`` as ``<a></a>``: in HTML the slash means nothing."""
    name = match[1]
    if name.lower() in _VOID:
        return match[0]
    return f"<{name}{match[2]}></{name}>"


def _title(tree: LexborHTMLParser) -> str | None:
    """Return the title in the head of a page, without the name of the site."""
    node = tree.css_first("head title")
    title = inline_text(node, ()) if node is not None else ""
    parts = _SITE.split(title)
    site = tree.css_first('meta[property="og:site_name"]')
    name = (site.attributes.get("content") or "") if site is not None else ""
    if len(parts) > 1 and parts[0] == name.strip():
        return parts[1]
    return parts[0] or None
