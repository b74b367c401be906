"""Kinds of content: their chunkers, and the versions of chunking."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Self

from content.registry import EXTRACTORS, extract
from processors.chunking.chunkers.code import chunk_code
from processors.chunking.chunkers.conversation import chunk_conversation
from processors.chunking.chunkers.markdown import chunk_markdown
from processors.chunking.chunkers.rendition import cut_rendition
from processors.chunking.chunkers.rst import chunk_rst
from processors.chunking.chunkers.text import chunk_text
from processors.chunking.examples import examples_of_rendition, examples_of_text
from processors.chunking.packing.outline import SIZES
from processors.chunking.types import (
    CHUNKING_VERSION,
    Boundaries,
    Chunker,
    CountTokens,
    Cut,
    Source,
)
from runtime.errors import UnsupportedContent, UsageError

__all__ = ["CHUNKERS", "CHUNKING_VERSION", "Chunking", "cut"]

_LINE_END = re.compile(r"\r+\n")

CHUNKERS: dict[str, Chunker] = {
    "code": chunk_code,
    "conversation": chunk_conversation,
    "markdown": chunk_markdown,
    "rst": chunk_rst,
    "text": chunk_text,
}

_SUPPORTED_VERSIONS = (1, CHUNKING_VERSION)
_FIRST_WITH_EXAMPLES = 2
_FIRST_WITH_PATHS = 2
_PATH_PARTS = 2
_ADDRESS = re.compile(r"\w[\w+.-]*://[^/?#]*([^?#]*)")
_PATH_SEPARATOR = re.compile(r"[/\\]+")
_PATTERN = re.compile(r"(?P<version>\d{1,4})(?::(?P<limit>\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Chunking:
    """A version of the chunkers, optionally with the most tokens that a chunk may have."""

    version: int = CHUNKING_VERSION
    limit_tokens: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``2``, or ``2:128`` for chunks of at most 128 tokens.

        Raises:
            UsageError: the form or the version is unknown, or the limit is too small.
        """
        parts = _PATTERN.fullmatch(text)
        if parts is None or int(parts["version"]) not in _SUPPORTED_VERSIONS:
            versions = ", ".join(map(str, _SUPPORTED_VERSIONS))
            raise UsageError(
                f"there is no chunking {text!r}",
                f"name one of the versions {versions}, optionally with the most tokens of a chunk, "
                f"as in {CHUNKING_VERSION}:128",
            )
        limit = None if parts["limit"] is None else int(parts["limit"])
        if limit is not None and limit < SIZES.minimum_tokens:
            raise UsageError(
                f"chunking {text!r}: allow at least {SIZES.minimum_tokens} tokens for a chunk"
            )
        return cls(int(parts["version"]), limit)

    def __str__(self) -> str:
        """Format as ``parse`` reads it."""
        return str(self.version) + ("" if self.limit_tokens is None else f":{self.limit_tokens}")

    def limit(self, model_tokens: int) -> int:
        """Most tokens of a chunk for a model with a limit of ``model_tokens``."""
        return model_tokens if self.limit_tokens is None else min(model_tokens, self.limit_tokens)


_AS_TEXT = {
    "conversation": ("conversation", ""),
    "openapi": ("code", "it is no valid description of an API, so it was cut as code"),
}
"""Kinds of which a text that cannot be extracted is cut as another kind, with a warning."""


def cut(source: Source, limit_tokens: int, count: CountTokens) -> Cut:
    """Cut ``source`` into chunks of at most ``limit_tokens`` tokens, header included.

    If the strategy needs distances between sentences, and the source does not have them, the result
    asks for them.

    Raises:
        UnsupportedContent: this kind has no chunker, or its text cannot be extracted.
        LimitExceeded: the limit is too small for a single character, or the document has too many
            parts.
    """
    boundaries = Boundaries(source.boundaries.distances)
    result = _cut(replace(source, boundaries=boundaries), limit_tokens, count)
    if boundaries.distances is None and boundaries.asked:
        return replace(result, asked=tuple(boundaries.asked))
    return result


def _cut(source: Source, limit_tokens: int, count: CountTokens) -> Cut:
    if source.kind not in EXTRACTORS:
        return _cut_text(source, limit_tokens, count)
    content = source.content
    raw = content.encode() if isinstance(content, str) else content
    try:
        rendition = extract(source.kind, raw)
    except UnsupportedContent:
        if source.kind not in _AS_TEXT or isinstance(content, bytes):
            raise
        kind, warning = _AS_TEXT[source.kind]
        text = _cut_text(replace(source, kind=kind), limit_tokens, count)
        return replace(text, warnings=(warning,) if warning else ())
    chunks = cut_rendition(source, rendition, limit_tokens, count)
    examples = (
        examples_of_rendition(source, rendition, limit_tokens, count)
        if _has_examples(source)
        else ()
    )
    return Cut(chunks, rendition.title, rendition.warnings, rendition.metadata, examples=examples)


def _cut_text(source: Source, limit_tokens: int, count: CountTokens) -> Cut:
    chunker = CHUNKERS.get(source.kind)
    if chunker is None:
        kinds = ", ".join(CHUNKERS)
        raise UnsupportedContent(f"no chunker for {source.kind!r}", f"publish it as one of {kinds}")
    plain = _with_path(_with_plain_line_ends(source))
    chunks = chunker(plain, limit_tokens, count)
    examples = examples_of_text(plain, limit_tokens, count) if _has_examples(source) else ()
    return Cut(chunks, examples=examples)


def _has_examples(source: Source) -> bool:
    return source.version >= _FIRST_WITH_EXAMPLES


def _with_path(source: Source) -> Source:
    """Let folder and file name stand for a missing title in the headers.

    The rest of the path is left out, so that the vectors of a tree stay valid when it is moved. The
    last part of a uri may be an id, unless the document is code or the part has a suffix.
    """
    if source.title or source.version < _FIRST_WITH_PATHS:
        return source
    address = _ADDRESS.match(source.uri)
    path = address[1] if address else source.uri
    parts = [part for part in _PATH_SEPARATOR.split(path) if part not in ("", ".", "..")]
    if not parts or not (source.kind == "code" or "." in parts[-1]):
        return source
    return replace(source, title="/".join(parts[-_PATH_PARTS:]))


def _with_plain_line_ends(source: Source) -> Source:
    r"""Remove ``\r``: a terminal would interpret it, and equal texts would count as different.

    Lines keep their numbers: a ``\r`` without ``\n`` becomes a blank.
    """
    if "\r" not in source.text:
        return source
    return replace(source, content=_LINE_END.sub("\n", source.text).replace("\r", " "))
