"""Strategies of chunking, one of which a recipe chooses for each collection.

``auto`` and ``structure`` cut each kind of content by its structure; they differ only for prose,
where ``auto`` aims at smaller chunks. The others are packers that
take the outline that the chunker of the kind has made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from processors.chunking.packing.lines import Lines
from processors.chunking.packing.outline import SIZES, Outline, Piece
from processors.chunking.packing.passages import pack_passages, sentence_digests
from processors.chunking.packing.windows import pack_whole, pack_windows
from processors.chunking.types import Boundaries, Chunk, Source
from runtime.errors import UsageError

__all__ = ["AUTO", "SEMANTIC", "STRATEGIES", "STRUCTURE", "Strategy", "packed_by_strategy"]

AUTO = "auto"
SEMANTIC = "semantic"
STRUCTURE = "structure"
STRATEGIES = {
    AUTO: "by the structure of the kind of content",
    STRUCTURE: "by paragraphs and headings, which stay whole where they fit",
    "sentence": "between sentences, at paragraphs first",
    SEMANTIC: "between sentences, within a paragraph where the topic changes",
    "whole": "not at all, if the document fits the model; else as auto",
    "fixed:TOKENS[:OVERLAP]": "after a number of tokens",
}
"""Name or form of each strategy, with the places that it cuts at."""

_FIXED = re.compile(r"fixed:(?P<size>\d{1,6})(?::(?P<overlap>\d{1,6}))?")
_LARGEST_WINDOW = 8_192
_STRUCTURED = frozenset({"code", "openapi", "sheet"})
"""Kinds without running text, which ``sentence`` and ``semantic`` cut as ``auto`` does."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A strategy by name; ``fixed`` has its sizes in tokens."""

    name: str = AUTO
    size_tokens: int = 0
    overlap_tokens: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the name of a strategy, or ``fixed:200`` and ``fixed:200:30``.

        Raises:
            UsageError: no such strategy, or its sizes are out of range.
        """
        if text in STRATEGIES and ":" not in text:
            return cls(text)
        parts = _FIXED.fullmatch(text)
        if parts is None:
            raise UsageError(
                f"there is no chunking {text!r}", f"name one of {', '.join(STRATEGIES)}"
            )
        size, overlap = int(parts["size"]), int(parts["overlap"] or 0)
        if not SIZES.minimum_tokens <= size <= _LARGEST_WINDOW:
            raise UsageError(
                f"chunking {text!r}: a chunk may have {SIZES.minimum_tokens} to "
                f"{_LARGEST_WINDOW:,} tokens"
            )
        if overlap > size // 2:
            raise UsageError(f"chunking {text!r}: the overlap may be at most half of the size")
        return cls("fixed", size, overlap)

    def __str__(self) -> str:
        """Format as ``parse`` reads it."""
        if self.name != "fixed":
            return self.name
        overlap = f":{self.overlap_tokens}" if self.overlap_tokens else ""
        return f"fixed:{self.size_tokens}{overlap}"


def packed_by_strategy(
    source: Source, lines: Lines, outline: Outline, limit_tokens: int
) -> list[tuple[Chunk, Piece]] | None:
    """Pack a document by its strategy. Returns None if it is to be packed by its structure."""
    strategy = Strategy.parse(source.strategy)
    document = source.title, lines, outline, limit_tokens
    match strategy.name:
        case "sentence" | "semantic" if source.kind not in _STRUCTURED:
            ties = partial(_ties, source.boundaries) if strategy.name == SEMANTIC else None
            return list(pack_passages(*document, ties or sentence_digests))
        case "whole":
            return pack_whole(*document)
        case "fixed":
            return pack_windows(*document, strategy.size_tokens, strategy.overlap_tokens)
    return None


def _ties(boundaries: Boundaries, sentences: Sequence[str]) -> Sequence[int]:
    """Distance before each sentence, then its hash; the hash alone if no distance is known yet."""
    digests = sentence_digests(sentences)
    distances = boundaries.of(sentences)
    if distances is None:
        return digests
    return [
        distance << 16 | digest & 0xFFFF
        for distance, digest in zip(distances, digests, strict=True)
    ]
