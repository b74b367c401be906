"""XML of archives, parsed without entities, document types and network."""

from __future__ import annotations

from typing import Any, TypeAlias

from lxml import etree  # type: ignore[import-untyped]

from runtime.errors import Damaged, LimitExceeded

__all__ = ["Element", "local_name", "parse_xml"]

MOST_ELEMENTS = 1_000_000
MOST_DEPTH = 200
Element: TypeAlias = Any
"""Element of lxml, which has no types."""


def parse_xml(raw: bytes) -> Element:
    """Return the root element of an XML document.

    Raises:
        Damaged: the bytes are not well-formed, or declare entities, which no part of an Office file
            and no index of a book needs.
        LimitExceeded: there are more than 1,000,000 elements, or more than 200 in each other.
    """
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(raw, parser)
    except (etree.LxmlError, ValueError) as error:
        raise Damaged("a part of the archive is not XML", "save the document again") from error
    if root is None:
        raise Damaged("a part of the archive is empty", "save the document again")
    declared = root.getroottree().docinfo.internalDTD
    if declared is not None and any(True for _ in declared.iterentities()):
        raise Damaged("a part of the archive declares entities", "save the document again")
    _refuse_large(root)
    return root


def _refuse_large(root: Element) -> None:
    depth = elements = 0
    for event, _ in etree.iterwalk(root, events=("start", "end")):
        depth += 1 if event == "start" else -1
        elements += event == "start"
        if depth > MOST_DEPTH or elements > MOST_ELEMENTS:
            raise LimitExceeded(
                f"a part of the archive has more than {MOST_ELEMENTS:,} elements, or more than "
                f"{MOST_DEPTH} in each other",
                "publish its text in another format",
            )


def local_name(element: Element) -> str:
    """Name of an element without its namespace; '' for what is not an element."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""
