"""Registry of extractors: one per kind whose bytes are rendered as Markdown before they are cut."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import cast

from content.rendition import MOST_BYTES, Extractor, Rendition
from runtime.errors import LimitExceeded, UnsupportedContent

__all__ = ["EXTRACTORS", "extract"]

EXTRACTORS: Mapping[str, str] = {
    "book": "content.extractors.book:extract",
    "conversation": "content.extractors.conversation.extractor:extract",
    "email": "content.extractors.email:extract",
    "html": "content.extractors.html:extract",
    "notebook": "content.extractors.notebook:extract",
    "openapi": "content.extractors.openapi:extract",
    "pdf": "content.extractors.pdf:extract",
    "sheet": "content.extractors.sheets:extract",
    "slides": "content.extractors.slides:extract",
    "word": "content.extractors.word:extract",
}
"""Module and function of each kind's extractor; other kinds are cut as they are.

The module is imported when its kind is first met, because the libraries of all formats together
take a second to import.
"""


def extract(kind: str, raw: bytes) -> Rendition:
    """Render the bytes of a document of this kind.

    Raises:
        UnsupportedContent: the kind has no extractor, or there is no text that can be extracted;
            the subclasses ``Encrypted``, ``NoTextLayer``, ``LegacyFormat`` and ``Damaged`` say why.
        LimitExceeded: the document has more parts than its extractor accepts, or its text has more
            than 8 MiB.
    """
    if kind not in EXTRACTORS:
        kinds = ", ".join(EXTRACTORS)
        raise UnsupportedContent(f"no extractor for {kind!r}", f"publish it as one of {kinds}")
    rendition = _extractor(EXTRACTORS[kind])(raw)
    size = sum(len(line.encode("utf-8", "surrogatepass")) + 1 for line in rendition.lines)
    if size > MOST_BYTES:
        raise LimitExceeded(
            f"the text of the document has {size:,} bytes, over the limit of {MOST_BYTES:,}",
            "publish its parts as documents of their own",
        )
    return rendition


def _extractor(name: str) -> Extractor:
    module, _, function = name.partition(":")
    return cast("Extractor", getattr(importlib.import_module(module), function))
