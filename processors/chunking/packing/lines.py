"""Lines of a document with their token counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from zlib import crc32

from processors.chunking.packing.outline import SIZES
from processors.chunking.types import CountTokens

__all__ = ["Lines"]


class Lines:
    r"""The lines of a text, split at ``\n`` only, as git, tree-sitter and permalinks count them.

    Form feeds stay inside their lines; ``\r`` was removed before. Rows count from 0; ranges are
    half open. A line's cost is its token count, or more if it has few tokens for its length. The
    sum over lines is the cost of the joined text, to within a token or two per line for tokenizers
    that merge across line ends. For an exact number, count the joined text.
    """

    def __init__(self, text: str, count: CountTokens) -> None:
        self.texts = text.split("\n")
        self.count = count
        self.blank = [not line or line.isspace() for line in self.texts]
        self._tokens = count(self.texts)
        self._token_sums = [0, *accumulate(self._tokens)]
        self.cost_sums = [0, *accumulate(_costs(self.texts, self._tokens))]

    def __len__(self) -> int:
        return len(self.texts)

    def cost(self, start: int, end: int) -> int:
        """Cost of a range of rows, in tokens."""
        return self.cost_sums[end] - self.cost_sums[start]

    def tokens(self, start: int, end: int) -> int:
        """Tokens of a range of rows."""
        return self._token_sums[end] - self._token_sums[start]

    def text(self, start: int, end: int) -> str:
        """Source text of a range of rows, without the last line's end."""
        return "\n".join(self.texts[start:end])

    def trim(self, start: int, end: int) -> tuple[int, int]:
        """Return the range without the blank rows at its ends; it is empty if all are blank."""
        while start < end and self.blank[start]:
            start += 1
        while end > start and self.blank[end - 1]:
            end -= 1
        return start, end

    def blanks_before(self, row: int, most: int = 2) -> int:
        """Count the blank rows right above ``row``, up to ``most``."""
        blanks = 0
        while blanks < most and row - blanks > 0 and self.blank[row - blanks - 1]:
            blanks += 1
        return blanks

    def digests(self, rows: Sequence[int]) -> list[int]:
        """Hash of 32 bits of each row that depends on its text only, equal in every process."""
        texts = self.texts
        return [crc32(texts[row].strip().encode("utf-8", "replace")) for row in rows]


def _costs(texts: Sequence[str], tokens: Sequence[int]) -> list[int]:
    per_token = SIZES.characters_per_token
    return [max(n, len(text) // per_token) for text, n in zip(texts, tokens, strict=True)]
