"""Registry of chunkers by kind of content."""

from __future__ import annotations

import re
from dataclasses import replace

from processors.indexing.chunking.code import chunk_code
from processors.indexing.chunking.conversation import chunk_conversation
from processors.indexing.chunking.markdown import chunk_markdown
from processors.indexing.chunking.openapi import chunk_openapi
from processors.indexing.chunking.rst import chunk_rst
from processors.indexing.chunking.text import chunk_text
from processors.indexing.chunking.types import Chunk, Chunker, CountTokens, Source
from runtime.errors import UnsupportedContent

__all__ = ["CHUNKERS", "chunk"]

_LINE_END = re.compile(r"\r+\n")

CHUNKERS: dict[str, Chunker] = {
    "code": chunk_code,
    "conversation": chunk_conversation,
    "markdown": chunk_markdown,
    "openapi": chunk_openapi,
    "rst": chunk_rst,
    "text": chunk_text,
}


def chunk(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Cut ``source`` into chunks of at most ``limit_tokens`` tokens, header included.

    Raises:
        UnsupportedContent: this kind has no chunker.
        LimitExceeded: the limit is too small for a single character.
    """
    source = _with_plain_line_ends(source)
    chunker = CHUNKERS.get(source.kind)
    if chunker is None:
        kinds = ", ".join(CHUNKERS)
        raise UnsupportedContent(
            f"no chunker for kind {source.kind!r}: publish it as one of {kinds}"
        )
    return chunker(source, limit_tokens, count)


def _with_plain_line_ends(source: Source) -> Source:
    r"""Remove ``\r``: a terminal would interpret it, and equal texts would count as different.

    Lines keep their numbers: a ``\r`` without ``\n`` becomes a blank.
    """
    if "\r" not in source.content:
        return source
    return replace(source, content=_LINE_END.sub("\n", source.content).replace("\r", " "))
