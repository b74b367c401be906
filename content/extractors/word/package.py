"""Package of a Word document: its parts, and its text as HTML."""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import cast
from xml.parsers.expat import ExpatError

import mammoth  # type: ignore[import-untyped]
from lxml import etree  # type: ignore[import-untyped]

from content.extractors.archives import open_members
from content.extractors.word.markup import (
    HEADING_STYLES,
    attribute,
    heading_levels,
    paragraph_text,
    simplify,
)
from content.extractors.xml_tree import Element, local_name, parse_xml
from runtime.errors import Damaged, LimitExceeded

__all__ = ["WordPackage"]

MOST_ELEMENTS = 300_000
_MAIN_PART = "word/document.xml"
_OTHER_PARTS = ("styles", "numbering", "footnotes", "endnotes")
_STYLE_MAP = "\n".join(f"p.{style} => h{level}:fresh" for level, style in HEADING_STYLES.items())
_UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ExpatError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
)
"""Errors of Mammoth for documents with parts in wrong places."""
_SAVE_AGAIN = "save it again with Word, and publish that"


class WordPackage:
    """Parts of a Word document.

    Raises:
        Encrypted: the document has a password.
        LegacyFormat: the document is a ``.doc``.
        Damaged: the archive is no Word document, or can't be read.
        LimitExceeded: the archive is over its limits.
    """

    def __init__(self, raw: bytes) -> None:
        self._members = open_members(raw)
        relations = self._relations("_rels/.rels", "")
        self._main = next(iter(relations.get("officeDocument", [])), _MAIN_PART)
        if self._main not in self._members:
            raise Damaged("the archive has no Word document", _SAVE_AGAIN)
        folder, name = posixpath.split(self._main)
        self._parts = self._relations(posixpath.join(folder, "_rels", f"{name}.rels"), folder)
        self._core = next(iter(relations.get("core-properties", [])), "docProps/core.xml")

    @property
    def title(self) -> str | None:
        """Title in the properties of the document. It is None without one."""
        for element in self._elements(self._core):
            if local_name(element) == "title":
                return " ".join((element.text or "").split()) or None
        return None

    @property
    def headers(self) -> Sequence[str]:
        """Paragraphs of all headers, each different one once."""
        return self._paragraphs("header")

    @property
    def footers(self) -> Sequence[str]:
        """Paragraphs of all footers, each different one once."""
        return self._paragraphs("footer")

    @property
    def has_pictures(self) -> bool:
        """True if a picture is in the document."""
        return any("/media/" in name for name in self._members.names)

    def html(self) -> str:
        """Return the text of the document as HTML.

        Raises:
            Damaged: a part of the document can't be read.
            LimitExceeded: a part has more than 300,000 elements, or they are nested too deeply.
        """
        parts = {name: self._part(name) for name in _OTHER_PARTS}
        styles = parts["styles"]
        levels = heading_levels(styles) if styles is not None else {}
        document = parse_xml(self._members.read(self._main))
        comments = self._part("comments")
        simplify(document, levels, _comments(comments) if comments is not None else {})
        for name in ("footnotes", "endnotes"):
            part = parts[name]
            if part is not None:
                simplify(part, {}, {})
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, root in {"document": document, **parts}.items():
                if root is not None:
                    archive.writestr(f"word/{name}.xml", _serialized(root))
        return _converted(buffer)

    def _part(self, name: str) -> Element | None:
        for path in self._parts.get(name, []):
            if path in self._members:
                return parse_xml(self._members.read(path))
        return None

    def _paragraphs(self, name: str) -> Sequence[str]:
        lines: dict[str, None] = {}
        for path in self._parts.get(name, []):
            for element in self._elements(path):
                if local_name(element) == "p":
                    lines[paragraph_text(element)] = None
        # page numbers and rules are no text
        return [line for line in lines if any(map(str.isalpha, line))]

    def _elements(self, path: str) -> Iterator[Element]:
        if path not in self._members:
            return iter(())
        return cast("Iterator[Element]", parse_xml(self._members.read(path)).iter())

    def _relations(self, path: str, folder: str) -> Mapping[str, Sequence[str]]:
        """Names of the members that a part refers to, by the last word of the relation's type."""
        relations: dict[str, list[str]] = {}
        for element in self._elements(path):
            if element.get("TargetMode") == "External" or not element.get("Target"):
                continue
            kind = (element.get("Type") or "").rpartition("/")[2]
            target = posixpath.normpath(posixpath.join(folder, element.get("Target"))).lstrip("/")
            relations.setdefault(kind, []).append(target)
        return relations


def _comments(root: Element) -> Mapping[str, str]:
    """Text of each comment by its id, with its author."""
    comments: dict[str, str] = {}
    for element in root.iter():
        if local_name(element) == "comment":
            paragraphs = (paragraph_text(p) for p in element.iter() if local_name(p) == "p")
            text = " ".join(filter(None, paragraphs))
            author = attribute(element, "author") or "an unnamed author"
            if text:
                comments[attribute(element, "id")] = f"Comment by {author}: {text}"
    return comments


def _serialized(root: Element) -> bytes:
    if sum(1 for _ in root.iter()) > MOST_ELEMENTS:
        raise LimitExceeded(
            f"a part of the document has more than {MOST_ELEMENTS:,} elements",
            "publish it in parts",
        )
    return cast("bytes", etree.tostring(root, encoding="utf-8", xml_declaration=True))


def _converted(archive: io.BytesIO) -> str:
    try:
        result = mammoth.convert_to_html(archive, style_map=_STYLE_MAP)
    except RecursionError as error:
        raise LimitExceeded(
            "the parts of the document are nested too deeply", "publish its text in another format"
        ) from error
    except _UNREADABLE as error:
        raise Damaged("the document can't be read", _SAVE_AGAIN) from error
    return cast("str", result.value)
