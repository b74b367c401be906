"""Cut a single line that is over the limit: at sentences, else at words, else anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from zlib import crc32

from processors.indexing.chunking.sizes import SIZES
from processors.indexing.chunking.splitting import Bounds, split, strength
from processors.indexing.chunking.types import CountTokens

__all__ = ["cut_line"]

_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+|[。！？]")  # noqa: RUF001 - Chinese and Japanese ends
_NOT_WORD = re.compile(r"\W")
_SLICE_CHARACTERS_PER_TOKEN = 4


def cut_line(line: str, limit_tokens: int, count: CountTokens) -> list[str]:
    """Parts of ``line`` that cost at most ``limit_tokens`` each; joined they are the line.

    A part is longer only if it is one character that alone has more tokens.
    """
    parts: list[str] = []
    for sentence in _sentences(line):
        parts.extend(_slices(sentence, limit_tokens))
    parts = _halve(parts, limit_tokens, count)
    return list(_merge(parts, limit_tokens, count))


def _sentences(line: str) -> Iterator[str]:
    start = 0
    for match in _SENTENCE_END.finditer(line):
        yield line[start : match.end()]
        start = match.end()
    if start < len(line):
        yield line[start:]


def _slices(text: str, limit_tokens: int) -> Iterator[str]:
    """Slices of a length that probably fits, so that a huge line isn't counted again and again."""
    size = limit_tokens * _SLICE_CHARACTERS_PER_TOKEN
    start = 0
    while len(text) - start > size:
        end = _word_start(text, start + size // 2, start + size)
        yield text[start:end]
        start = end
    yield text[start:]


def _word_start(text: str, low: int, high: int) -> int:
    """Place in ``low..high`` after the last character that isn't part of a word, else ``high``."""
    ends = [match.end() for match in _NOT_WORD.finditer(text, low, high)]
    return ends[-1] if ends else high


def _halve(parts: Sequence[str], limit_tokens: int, count: CountTokens) -> list[str]:
    fitting = list(parts)
    while True:
        costs = _costs(fitting, count)
        if all(
            cost <= limit_tokens or len(part) < 2 for part, cost in zip(fitting, costs, strict=True)
        ):
            return fitting
        fitting = [
            half
            for part, cost in zip(fitting, costs, strict=True)
            for half in ((part,) if cost <= limit_tokens or len(part) < 2 else _halves(part))
        ]


def _halves(text: str) -> tuple[str, str]:
    middle = _word_start(text, len(text) // 4, max(len(text) // 2, 1))
    return text[:middle], text[middle:]


def _merge(parts: Sequence[str], limit_tokens: int, count: CountTokens) -> Iterator[str]:
    sums = [0, *accumulate(_costs(parts, count))]
    strengths = [strength(0, crc32(part.encode("utf-8", "replace"))) for part in parts]
    bounds = Bounds(limit_tokens, limit_tokens, SIZES.minimum_tokens)
    for start, end in split(sums, strengths, 0, len(parts), bounds):
        yield "".join(parts[start:end])


def _costs(texts: Sequence[str], count: CountTokens) -> list[int]:
    tokens = count(texts)
    return [
        max(n, len(text) // SIZES.characters_per_token)
        for n, text in zip(tokens, texts, strict=True)
    ]
