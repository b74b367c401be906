"""Input and output types of chunkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Chunk", "Chunker", "CountTokens", "Cut", "Source"]

CountTokens = Callable[[Sequence[str]], list[int]]
"""Token counts of many texts at once, by the tokenizer of the model that will embed them."""


@dataclass(frozen=True, slots=True)
class Source:
    """A document to cut. ``language`` is a tree-sitter language name for code, else None.

    ``content`` is a text, or the bytes of a kind that is extracted first.
    """

    uri: str
    content: str | bytes
    kind: str
    language: str | None = None
    title: str | None = None
    media_type: str | None = None

    @property
    def text(self) -> str:
        """Content of a text.

        Raises:
            TypeError: the content is bytes.
        """
        if isinstance(self.content, bytes):
            raise TypeError(f"the content of {self.uri} is bytes")
        return self.content


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of whole lines, or a part of a single line that is over the limit.

    Lines count from 1, both ends included. ``content`` is the source text itself; ``header`` is put
    before it when it is embedded. ``tokens`` counts header and content. ``locator`` is the place of
    an extracted chunk in the original, as ``content.places`` makes it; a text has none.
    """

    start_line: int
    end_line: int
    content: str
    header: str
    tokens: int
    symbol: str | None = None
    heading_path: tuple[str, ...] = ()
    page: int | None = None
    locator: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """Chunks of a document, with the title and the warnings of its extraction, if it needed one."""

    chunks: Sequence[Chunk]
    title: str | None = None
    warnings: tuple[str, ...] = ()


class Chunker(Protocol):
    """Cuts one kind of content. Chunks cover every non-blank line, in order, without overlap."""

    def __call__(self, source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
        """Cut a text into chunks of at most ``limit_tokens`` tokens, header included."""
        ...
