"""Extractor of books (EPUB): the chapters in reading order, under the titles of their contents."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from selectolax.lexbor import LexborHTMLParser

from content.extractors.archives import Members, open_members
from content.extractors.charsets import declared_in, decode
from content.extractors.draft import Draft
from content.extractors.html.inline import inline_text
from content.extractors.html.page import parse, put_page
from content.extractors.xml_tree import Element, local_name, parse_xml
from content.rendition import Place, Rendition
from runtime.errors import Damaged, Encrypted, LimitExceeded

__all__ = ["extract"]

MOST_CHAPTERS = 2_000
MOST_CHAPTER_BYTES = 64 << 20
_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_PAGE_TYPES = frozenset({"application/xhtml+xml", "text/html", "application/xml", "text/xml"})
_SAVE_AGAIN = "save it again with the program that made it, and publish that"
_MOST_LEVEL = 6


class _Item(NamedTuple):
    """File of the book."""

    name: str
    media_type: str
    properties: frozenset[str]


class _Entry(NamedTuple):
    """First entry of the table of contents for a chapter. ``level`` counts from 1."""

    title: str
    level: int


@dataclass(frozen=True, slots=True)
class _Package:
    """Contents of the package file."""

    title: str | None
    authors: tuple[str, ...]
    items: Mapping[str, _Item]
    chapters: tuple[_Item, ...]
    contents: str | None


def extract(raw: bytes) -> Rendition:
    """Return the chapters of a book; places are ``chapter-file.xhtml#id``.

    Raises:
        Encrypted: the chapters are protected.
        Damaged: the archive is no EPUB, or a file of it is missing.
        LimitExceeded: the archive is over its limits, there are more than 2,000 chapters, or more
            than 8 MiB of text.
    """
    members = open_members(raw)
    package = _package(members)
    _refuse_protected(members, package)
    contents = _contents(members, package)
    draft = Draft()
    if package.authors:
        draft.block(f"By {', '.join(package.authors)}", Place())
    levels = _Levels(contents)
    if sum(members.size(chapter.name) for chapter in package.chapters) > MOST_CHAPTER_BYTES:
        raise LimitExceeded(
            f"the chapters of the book have more than {MOST_CHAPTER_BYTES >> 20} MiB",
            "publish it in parts",
        )
    for chapter in package.chapters:
        _put_chapter(draft, members, chapter, levels)
    return draft.rendition(package.title)


def _package(members: Members) -> _Package:
    container = parse_xml(members.read(_CONTAINER))
    path = next((unquote(root.get("full-path") or "") for root in _all(container, "rootfile")), "")
    root = parse_xml(members.read(path))
    folder = posixpath.dirname(path)
    items = {
        item.get("id") or "": _Item(
            _resolved(folder, item.get("href") or ""),
            item.get("media-type") or "",
            frozenset((item.get("properties") or "").split()),
        )
        for item in _all(root, "item")
    }
    spine = next(_all(root, "spine"), None)
    references = [] if spine is None else list(_all(spine, "itemref"))
    if len(references) > MOST_CHAPTERS:
        raise LimitExceeded(
            f"the book has more than {MOST_CHAPTERS:,} chapters", "publish it in parts"
        )
    chapters = [items[key] for ref in references if (key := ref.get("idref") or "") in items]
    by_property = [item.name for item in items.values() if "nav" in item.properties]
    ncx = items.get("" if spine is None else spine.get("toc") or "")
    fallback = ncx.name if ncx is not None else None
    return _Package(
        title=next(_texts(root, "title"), None),
        authors=tuple(_texts(root, "creator")),
        items=items,
        chapters=tuple(
            chapter
            for chapter in {chapter.name: chapter for chapter in chapters}.values()
            if chapter.media_type in _PAGE_TYPES and "nav" not in chapter.properties
        ),
        contents=next(iter(by_property), fallback),
    )


def _refuse_protected(members: Members, package: _Package) -> None:
    """Refuse a book whose chapters are encrypted; encrypted fonts do not matter."""
    if _ENCRYPTION not in members:
        return
    protected = {
        unquote(reference.get("URI") or "").lstrip("/")
        for reference in _all(parse_xml(members.read(_ENCRYPTION)), "CipherReference")
    }
    if protected & {chapter.name for chapter in package.chapters}:
        raise Encrypted("the chapters of the book are protected", "publish a copy without DRM")


def _put_chapter(draft: Draft, members: Members, chapter: _Item, levels: _Levels) -> None:
    if chapter.name not in members:
        draft.warn("a chapter that the book lists is missing")
        return
    page = members.read(chapter.name)
    text = decode(page, declared_in(page)).text
    file = posixpath.basename(chapter.name)

    def place_of(identifier: str, _path: tuple[str, ...]) -> Place:
        return Place(fragment=f"{file}#{identifier}" if identifier else file)

    tree = parse(text)
    name, shift = levels.of_chapter(chapter.name, tree)
    if name is not None:
        draft.heading(name.level, name.title, place_of("", ()))
    put_page(draft, text, place_of, main_only=False, shift=shift)


class _Levels:
    """Levels of headings under the table of contents."""

    def __init__(self, contents: Mapping[str, _Entry]) -> None:
        self._contents = contents
        self._shift = 0

    def of_chapter(self, name: str, tree: LexborHTMLParser) -> tuple[_Entry | None, int]:
        """Return the heading that a chapter lacks, or None, and the shift of its own headings.

        A file that the table of contents does not name continues the one before.
        """
        entry = self._contents.get(name)
        if entry is None:
            return None, self._shift
        headings = [
            (int((node.tag or "h1")[1]), inline_text(node, (), marked=False))
            for node in tree.css("h1, h2, h3, h4, h5, h6")
        ]
        headings = [(level, text) for level, text in headings if text]
        if not headings:
            self._shift = entry.level
            return entry, self._shift
        first_level, first = headings[0]
        if _agree(first, entry.title):
            self._shift = entry.level - first_level
            return None, self._shift
        self._shift = entry.level + 1 - min(level for level, _ in headings)
        return entry, self._shift


def _agree(heading: str, title: str) -> bool:
    """True if one of two titles contains the other, numbers and punctuation set aside."""
    own, other = ("".join(filter(str.isalpha, text.lower())) for text in (heading, title))
    return bool(own and other) and (own in other or other in own)


def _contents(members: Members, package: _Package) -> Mapping[str, _Entry]:
    """First entry of the table of contents for each file. It is empty without a readable table."""
    if package.contents is None or package.contents not in members:
        return {}
    try:
        root = parse_xml(members.read(package.contents))
    except Damaged:
        return {}
    folder = posixpath.dirname(package.contents)
    entries: dict[str, _Entry] = {}
    for target, title, level in _listed(root):
        name = _resolved(folder, target)
        if title and name not in entries:
            entries[name] = _Entry(title, min(level, _MOST_LEVEL))
    return entries


def _listed(root: Element) -> Iterator[tuple[str, str, int]]:
    """Yield target, title and level of the entries of either form: NCX, or lists of links."""
    for point in _all(root, "navPoint"):
        target = next((content.get("src") or "" for content in _all(point, "content")), "")
        level = 1 + sum(local_name(parent) == "navPoint" for parent in point.iterancestors())
        yield target, next(_texts(point, "text"), ""), level
    tables = [nav for nav in _all(root, "nav") if "toc" in _types(nav)]
    for nav in tables[:1] or list(_all(root, "nav"))[:1]:
        for link in _all(nav, "a"):
            depth = sum(local_name(parent) == "ol" for parent in link.iterancestors())
            yield link.get("href") or "", _text(link), max(depth, 1)


def _types(nav: Element) -> str:
    return " ".join(value for name, value in nav.attrib.items() if name.endswith("type"))


def _resolved(folder: str, href: str) -> str:
    """Name of the member that a reference means."""
    path = unquote(href.partition("#")[0])
    return posixpath.normpath(posixpath.join(folder, path)).lstrip("/")


def _all(root: Element, name: str) -> Iterator[Element]:
    return (element for element in root.iter() if local_name(element) == name)


def _texts(root: Element, name: str) -> Iterator[str]:
    return (text for element in _all(root, name) if (text := _text(element)))


def _text(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())
