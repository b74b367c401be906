"""Text of elements in a line: phrases, cells, headings and terms."""

from __future__ import annotations

import re
from collections.abc import Collection

from selectolax.lexbor import LexborNode

__all__ = ["DROPPED_TAGS", "inline_text", "is_note", "phrase"]

_WITHOUT_TEXT = (
    "audio button canvas datalist embed frame frameset head iframe input link map meta noframes "
    "noscript object script select style svg template textarea title video"
)
DROPPED_TAGS = frozenset(_WITHOUT_TEXT.split())
"""Elements without text for a reader."""

_CODE = frozenset({"code", "tt", "kbd", "samp"})
_PHRASING = (
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr output "
    "q rb ruby s samp small span strike strong sub sup time tt u var wbr"
)
_NOT_APART = frozenset(_PHRASING.split())
"""Elements that do not part words: the text around them is one line."""
_PERMALINK_MARKS = frozenset({"", "¶", "#", "§", "🔗", "↑", "↩"})
_INVISIBLE = "\u200b\ufe0e\ufe0f"
_NOTE = re.compile(
    r"(?:^|[\s_-])(?:note|tip|hint|info|warning|caution|danger|important|admonition|callout"
    r"|footnotes?|example|theorem)(?:[\s_-]|$)",
    re.IGNORECASE,
)
_FEWEST_ALT_CHARACTERS = 4
_TEX = "application/x-tex"


def phrase(node: LexborNode, tag: str) -> str | None:
    """Return the Markdown of an element that has no children to read. Returns None for others.

    Code is put between backticks, an image becomes ``[alt]``, a formula its TeX source. Marks that
    link to a heading, or from a footnote to the text, are left out.
    """
    if tag in _CODE:
        verbatim = node.text(deep=True)
        if "\n" in verbatim and node.css_first("pre") is not None:
            return None
        text = " ".join(verbatim.split())
        return f"`{text}`" if text and "`" not in text else text
    if tag == "a":
        return "" if _is_permalink(node) else None
    if tag == "img":
        alt = " ".join((node.attributes.get("alt") or "").split())
        return f"[{alt}]" if len(alt) >= _FEWEST_ALT_CHARACTERS else ""
    if tag == "math":
        return _formula(node)
    return None


def is_note(node: LexborNode | None) -> bool:
    """True for an element whose class marks it as a note, a warning, a footnote or the like."""
    return node is not None and bool(_NOTE.search(node.attributes.get("class") or ""))


def inline_text(node: LexborNode, dropped: Collection[int], *, marked: bool = True) -> str:
    """Return the text of an element as a single line.

    Args:
        node: element, of which the children are read.
        dropped: ``mem_id`` of the elements to leave out.
        marked: put code between backticks.
    """
    parts: list[str] = []
    ancestors: list[LexborNode] = []
    current: LexborNode | None = node.child
    while current is not None:
        child = _enter(current, parts, dropped, marked)
        if child is not None:
            ancestors.append(current)
            current = child
            continue
        following = current.next
        while following is None and ancestors:
            current = ancestors.pop()
            if current.tag not in _NOT_APART:
                parts.append(" ")
            following = current.next
        current = following
    return " ".join("".join(parts).split()).rstrip("¶").rstrip()


def _enter(
    node: LexborNode, parts: list[str], dropped: Collection[int], marked: bool
) -> LexborNode | None:
    """Append the text of ``node``. Returns its first child if the children are to be read."""
    tag = node.tag or ""
    if tag == "-text":
        parts.append(node.text_content or "")
        return None
    if tag in DROPPED_TAGS or tag[:1] in "-_!" or node.mem_id in dropped:
        return None
    if tag not in _NOT_APART:
        parts.append(" ")
    if marked or tag not in _CODE:
        text = phrase(node, tag)
        if text is not None:
            parts.append(text)
            return None
    return node.child


def _is_permalink(node: LexborNode) -> bool:
    """True for a link to a place of the page whose text is a mark."""
    if not (node.attributes.get("href") or "").startswith("#"):
        return False
    return (
        node.text(deep=True).strip().strip(_INVISIBLE) in _PERMALINK_MARKS
        and node.css_first("img") is None
    )


def _formula(node: LexborNode) -> str:
    tex = node.attributes.get("alttext")
    if not tex:
        source = node.css_first(f'annotation[encoding="{_TEX}"]')
        tex = source.text(deep=True) if source is not None else ""
    tex = re.sub(r"\s+", " ", tex or "").strip()
    return f"${tex}$" if tex else node.text(deep=True, separator=" ")
