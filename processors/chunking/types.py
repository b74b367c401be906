"""Input and output types of chunkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

__all__ = [
    "CHUNKING_VERSION",
    "Boundaries",
    "Chunk",
    "Chunker",
    "CountTokens",
    "Cut",
    "Source",
]

CHUNKING_VERSION = 2
"""Increased when documents of a kind are cut differently, so that recipes show which index is old.

Version 1 cuts a line of prose only if it is over the limit, cuts fences and tables like paragraphs,
leaves code of few lines between definitions by itself, puts no path into headers, and gives no code
examples. A new kind needs no increase: a document gets it with its next change, or by a replay.
"""

CountTokens = Callable[[Sequence[str]], list[int]]
"""Token counts of many texts at once, by the tokenizer of the model that will embed them."""


@dataclass(slots=True)
class Boundaries:
    """Distances in meaning between the sentences of one document, for the strategy ``semantic``.

    Chunkers have no model. They are called a first time to collect the ``asked`` sentences, run by
    run, and a second time with the ``distances``: of each run the cosine distance of the texts
    before and after each sentence, in 1/10,000.
    """

    distances: Sequence[Sequence[int]] | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def of(self, sentences: Sequence[str]) -> Sequence[int] | None:
        """Return the distance before each sentence of the next run, or None in the first call."""
        self.asked.append(tuple(sentences))
        if self.distances is None:
            return None
        return self.distances[len(self.asked) - 1]


@dataclass(frozen=True, slots=True)
class Source:
    """A document to cut. ``language`` is a tree-sitter language name for code, else None.

    ``content`` is a text, or the bytes of a kind that is extracted first. ``version`` is the
    version of chunking, ``strategy`` one of ``strategies``.
    """

    uri: str
    content: str | bytes
    kind: str
    language: str | None = None
    title: str | None = None
    media_type: str | None = None
    version: int = CHUNKING_VERSION
    strategy: str = "auto"
    boundaries: Boundaries = field(default_factory=Boundaries, compare=False, repr=False)

    @property
    def text(self) -> str:
        """Content of a text.

        Raises:
            TypeError: the content is bytes.
        """
        if isinstance(self.content, bytes):
            raise TypeError(f"the content of {self.uri} is bytes")
        return self.content


class Chunk(NamedTuple):
    """A run of whole lines, a part of a line that is over the limit, or a run of sentences.

    Lines count from 1, both ends included. Sentences may begin and end within a line, which then
    belongs to two chunks. ``content`` is the source text itself; ``header`` is put
    before it when it is embedded. ``tokens`` counts header and content. ``locator`` is the place of
    an extracted chunk in the original, as ``content.places`` makes it. A text has none, but for the
    lines around a part of a fence or a table, see ``content.places.rendered``. A code example may
    have a ``language``; its ``surroundings`` are a part of ``header``.
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
    language: str | None = None
    surroundings: str = ""


@dataclass(frozen=True, slots=True)
class Cut:
    """Chunks of a document, with the title, warnings and metadata of its extraction, if any.

    ``asked``: runs of sentences between which the distances are needed. The chunks are then only
    an estimate.
    ``examples`` repeat the code in ``chunks``, with the text around it, for a search of their own.
    """

    chunks: Sequence[Chunk]
    title: str | None = None
    warnings: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    asked: Sequence[Sequence[str]] = ()
    examples: Sequence[Chunk] = ()


class Chunker(Protocol):
    """Cuts one kind of content. Chunks cover every non-blank line, in order, without overlap.

    What the windows of a strategy repeat is part of their headers only.
    """

    def __call__(self, source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
        """Cut a text into chunks of at most ``limit_tokens`` tokens, header included."""
        ...
