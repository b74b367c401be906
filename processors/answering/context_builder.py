"""Context of an answer: whole passages that fit a token budget, grouped by document."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from processors.answering.token_counters import counter_of
from processors.chunking.types import CountTokens

__all__ = ["Block", "ContextBuilder"]

_SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class Block:
    """A passage as the context shows it. ``label`` is the number of its result, from 1.

    In an answer with sections, the name of the section precedes it.

    ``place`` is its citation, and ``within`` the definition that it begins within, or "". Lines
    count from 1, and ``ordinals`` are those of its chunks. A passage of ``has_lines`` is cited by
    its lines alone.
    """

    label: str
    document_id: int
    uri: str
    ordinals: range
    start_line: int
    end_line: int
    place: str
    text: str
    within: str = ""
    has_lines: bool = True

    def __str__(self) -> str:
        """Format as the context shows it."""
        return "\n".join(filter(None, (f"[{self.label}] {self.place}", self.within, self.text)))

    def followed_by(self, other: Block) -> Block | None:
        """Return both as one if the other is the continuation in the same document, else None."""
        if not (self.has_lines and other.has_lines and other.document_id == self.document_id):
            return None
        if not self.ordinals or other.ordinals.start != self.ordinals.stop:
            return None
        between = "\n" * (other.start_line - self.end_line)
        return replace(
            self,
            ordinals=range(self.ordinals.start, other.ordinals.stop),
            end_line=other.end_line,
            place=f"{self.uri}:{self.start_line}-{other.end_line}",
            text=f"{self.text}{between}{other.text}",
        )


class ContextBuilder:
    """Builds contexts; ``count_tokens`` counts for questions that name no tokenizer."""

    def __init__(self, count_tokens: CountTokens) -> None:
        self._count_tokens = count_tokens

    async def build(
        self, blocks: Sequence[Block], budget_tokens: int, tokenizer: str | None = None
    ) -> str:
        """Return the best blocks that fit, each under its citation.

        ``blocks`` come best first. One that does not fit is left out whole, and later ones may
        still fit. The documents are in the order of their best blocks, and the blocks of a document
        in the order of its text; neighbours are joined under one citation. ``tokenizer`` names that
        of the asker's model.

        Raises:
            UsageError: there is no such tokenizer.
        """
        count = self._count_tokens
        if tokenizer is not None:
            count = await asyncio.to_thread(counter_of, tokenizer)
        # a block and what separates it from the next are counted together, as they are sent
        costs = count([f"{block}{_SEPARATOR}" for block in blocks])
        selected: list[Block] = []
        for block, tokens in zip(blocks, costs, strict=True):
            if tokens <= budget_tokens:
                budget_tokens -= tokens
                selected.append(block)
        return _SEPARATOR.join(map(str, _in_order(selected)))


def _in_order(selected: Sequence[Block]) -> list[Block]:
    """Blocks by document, and by line within one; those that continue each other are joined."""
    documents = list(dict.fromkeys(block.document_id for block in selected))
    rank = {document_id: at for at, document_id in enumerate(documents)}
    joined: list[Block] = []
    for block in sorted(selected, key=lambda block: (rank[block.document_id], block.start_line)):
        longer = joined[-1].followed_by(block) if joined else None
        if longer is None:
            joined.append(block)
        else:
            joined[-1] = longer
    return joined
