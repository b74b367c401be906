"""Markup of Word documents, reduced to what Mammoth reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from content.extractors.xml_tree import Element, local_name

__all__ = [
    "HEADING_STYLES",
    "attribute",
    "heading_levels",
    "paragraph_text",
    "simplify",
]

HEADING_STYLES = {level: f"HeadraceHeading{level}" for level in range(1, 7)}
"""Style of the headings of each level."""
_HEADING_NAME = re.compile(
    r"(?:heading|\xfcberschrift|titre|rubrik|kop|t\xedtulo)\s*([1-9])", re.IGNORECASE
)
_TITLE_NAMES = frozenset({"title", "titel", "titre"})
_BODY_TEXT_LEVEL = 9
_DEEPEST = max(HEADING_STYLES)
_MOST_HEADING_CHARACTERS = 300
_FEWEST_ALT_CHARACTERS = 4
_MOST_STYLES_ABOVE = 20
_DELETED = frozenset({"del", "moveFrom", "rPrChange", "pPrChange", "sectPr", "proofErr"})
_PICTURES = frozenset({"drawing", "pict", "object"})


def attribute(element: Element, name: str) -> str:
    """Return the value of an attribute of any namespace, or '' without one."""
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return str(value)
    return ""


def paragraph_text(paragraph: Element) -> str:
    """Return the text of a paragraph in one line, without deletions."""
    parts: list[str] = []
    for element in paragraph.iter():
        name = local_name(element)
        if name == "t":
            parts.append(element.text or "")
        elif name in {"tab", "br", "cr"}:
            parts.append(" ")
    return " ".join("".join(parts).split())


def heading_levels(styles: Element) -> Mapping[str, int]:
    """Return the level of each style that makes headings, by the style's id.

    It is that of the style's outline, of a style above it, or of its name. The style of titles has
    level 1.
    """
    above: dict[str, str] = {}
    own: dict[str, int] = {}
    for style in _children(styles, "style"):
        identifier = attribute(style, "styleId")
        name = _value(style, "name").strip().lower()
        above[identifier] = _value(style, "basedOn")
        level = _outline_level(style)
        by_name = _HEADING_NAME.fullmatch(name)
        if by_name:
            level = int(by_name[1])
        elif name in _TITLE_NAMES:
            level = 1
        if level is not None:
            own[identifier] = level
    levels: dict[str, int] = {}
    for identifier in above:
        style = identifier
        for _ in range(_MOST_STYLES_ABOVE):
            if style in own or style not in above:
                break
            style = above[style]
        if own.get(style, 0) in range(1, _BODY_TEXT_LEVEL + 1):
            levels[identifier] = min(own[style], _DEEPEST)
    return levels


def simplify(root: Element, levels: Mapping[str, int], comments: Mapping[str, str]) -> None:
    """Change a part in place so that Mammoth reads all of its text.

    Args:
        root: document or notes.
        levels: level of the headings by style.
        comments: text by id, for the comments to put after their paragraphs.
    """
    _remove(root, _DELETED)
    for formula in list(_named(root, "oMath")):
        _replace_by_text(formula, " ".join(_texts(formula)))
    for alternatives in list(_named(root, "AlternateContent")):
        _choose(alternatives)
    for paragraph in list(_named(root, "p")):
        _move_boxes(paragraph)
    for picture in [element for element in root.iter() if local_name(element) in _PICTURES]:
        _replace_by_text(picture, _alternative_text(picture))
    for run in _named(root, "r"):
        for properties in _children(run, "rPr"):
            run.remove(properties)
    for link in _named(root, "hyperlink"):
        link.attrib.clear()
    for paragraph in list(_named(root, "p")):
        _set_heading_style(paragraph, levels)
        _put_comments(paragraph, comments)


def _remove(root: Element, names: frozenset[str]) -> None:
    for element in [element for element in root.iter() if local_name(element) in names]:
        parent = element.getparent()
        # the mark of a deleted paragraph stands in its properties, and Mammoth joins such ones
        if parent is not None and local_name(parent) != "rPr":
            parent.remove(element)


def _choose(alternatives: Element) -> None:
    """Replace alternatives by the one that has text; programs that read both read it twice."""
    parent = alternatives.getparent()
    if parent is None:
        return
    options = [option for option in alternatives if local_name(option) in {"Choice", "Fallback"}]
    chosen = next((option for option in options if any(_texts(option))), None)
    if chosen is None and options:
        chosen = options[0]
    position = parent.index(alternatives)
    parent.remove(alternatives)
    for child in reversed(list(chosen) if chosen is not None else []):
        parent.insert(position, child)


def _move_boxes(paragraph: Element) -> None:
    """Move the content of text boxes behind their paragraph."""
    parent = paragraph.getparent()
    if parent is None:
        return
    following = paragraph
    for box in list(_named(paragraph, "txbxContent")):
        if any(local_name(above) == "txbxContent" for above in box.iterancestors()):
            continue  # the paragraph is in a box itself, and its turn comes with the outer one
        for block in list(box):
            following.addnext(block)
            following = block


def _replace_by_text(element: Element, text: str) -> None:
    """Replace an element by a run with ``text``, or by nothing."""
    parent = element.getparent()
    if parent is None:
        return
    if text:
        namespace = _namespace(element)
        content = element.makeelement(f"{namespace}t")
        content.text = text
        if local_name(parent) != "r":
            run = element.makeelement(f"{namespace}r")
            run.append(content)
            content = run
        element.addprevious(content)
    parent.remove(element)


def _namespace(element: Element) -> str:
    """Namespace of the paragraph around an element, in braces."""
    for above in element.iterancestors():
        if local_name(above) in {"p", "r", "body"}:
            return str(above.tag).rpartition("}")[0] + "}"
    return ""


def _alternative_text(picture: Element) -> str:
    for properties in _named(picture, "docPr"):
        text = " ".join((properties.get("descr") or "").split())
        return f"[{text}]" if len(text) >= _FEWEST_ALT_CHARACTERS else ""
    return ""


def _set_heading_style(paragraph: Element, levels: Mapping[str, int]) -> None:
    properties = next(_children(paragraph, "pPr"), None)
    if properties is None:
        return
    style = next(_children(properties, "pStyle"), None)
    level = levels.get(attribute(style, "val")) if style is not None else None
    own = _outline(properties)
    if own is not None:
        level = own if own <= _BODY_TEXT_LEVEL else None
    if level is None or len(paragraph_text(paragraph)) > _MOST_HEADING_CHARACTERS:
        return
    namespace = str(properties.tag).rpartition("}")[0] + "}"
    if style is None:
        style = properties.makeelement(f"{namespace}pStyle")
        properties.insert(0, style)
    style.attrib.clear()
    style.set(f"{namespace}val", HEADING_STYLES[min(level, _DEEPEST)])


def _put_comments(paragraph: Element, comments: Mapping[str, str]) -> None:
    following = paragraph
    for reference in list(_named(paragraph, "commentReference")):
        text = comments.get(attribute(reference, "id"))
        reference.getparent().remove(reference)
        if text:
            comment = _paragraph(paragraph, text)
            following.addnext(comment)
            following = comment


def _paragraph(like: Element, text: str) -> Element:
    namespace = str(like.tag).rpartition("}")[0] + "}"
    paragraph = like.makeelement(f"{namespace}p")
    run = like.makeelement(f"{namespace}r")
    content = like.makeelement(f"{namespace}t")
    content.text = text
    run.append(content)
    paragraph.append(run)
    return paragraph


def _outline_level(style: Element) -> int | None:
    properties = next(_children(style, "pPr"), None)
    return _outline(properties) if properties is not None else None


def _outline(properties: Element) -> int | None:
    """Outline level from 1 to 10, of which 10 is body text. Returns None without one."""
    value = _value(properties, "outlineLvl")
    return int(value) + 1 if value.isascii() and value.isdigit() and len(value) == 1 else None


def _value(element: Element, name: str) -> str:
    child = next(_children(element, name), None)
    return attribute(child, "val") if child is not None else ""


def _texts(element: Element) -> Sequence[str]:
    return [part.text for part in _named(element, "t") if part.text and part.text.strip()]


def _named(root: Element, name: str) -> Iterator[Element]:
    return (element for element in root.iter() if local_name(element) == name)


def _children(element: Element, name: str) -> Iterator[Element]:
    return (child for child in element if local_name(child) == name)
