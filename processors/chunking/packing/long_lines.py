"""Cutting of a single line that is too long: at sentences, else at words, else anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import ceil
from zlib import crc32

from processors.chunking.packing.outline import SIZES
from processors.chunking.packing.splitter import Bounds, split
from processors.chunking.types import CountTokens

__all__ = ["cut_line", "cut_sentences"]

Atom = tuple[str, int]
"""A text and its cost in tokens."""

_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+|[。！？]")  # noqa: RUF001 - Chinese and Japanese ends
_WHOLE_SENTENCE_END = re.compile(
    r"(?<!\b[A-Z])(?<!\b(?:Mr|Ms|Dr|St|vs|cf|Eq|No|al|pp))(?<!\b(?:Mrs|Fig|Vol|e\.g|i\.e))"
    r"(?<!\bProf)[.!?][\"')\]”’»*_]*+\s++(?=[^\Wa-z]|[\"'(\[“‘«*_`])|[。！？]"  # noqa: RUF001
)
"""End of a sentence before a capital, a digit or a mark, unless an abbreviation ends there."""
_NOT_WORD = re.compile(r"\W")
_WORD = re.compile(r"\w*\W|\w+")
_SLICE_CHARACTERS_PER_TOKEN = 4
_FEW_PARTS = 3
_FILLED = 0.9
"""Share of the limit that parts of a very long line fill, so that whole sentences fit into them."""


def cut_line(line: str, limit_tokens: int, count: CountTokens) -> list[str]:
    """Cut ``line`` into parts that cost at most ``limit_tokens`` each; joined they are the line.

    The parts are few and of about equal cost, because a short rest would contain too little to be
    retrieved. A part is over the limit only if it is a single character with more tokens.
    """
    slices = [part for text in _sentences(line) for part in _slices(text, limit_tokens)]
    return list(_Cutter(_halve(slices, limit_tokens, count), limit_tokens, count).parts())


def cut_sentences(line: str, bounds: Bounds, count: CountTokens) -> list[str]:
    """Cut ``line`` at ends of sentences into parts of ``bounds``; joined they are the line.

    The cuts depend on the sentences next to them, so that an edit changes few parts. A sentence
    over the limit is cut at words.
    """
    sentences = list(_sentences(line, _WHOLE_SENTENCE_END))
    atoms: list[Atom] = []
    for sentence, cost in _with_costs(sentences, count):
        if cost <= bounds.limit:
            atoms.append((sentence, cost))
        else:
            atoms += _with_costs(cut_line(sentence, bounds.limit, count), count)
    sums = [0, *accumulate(cost for _, cost in atoms)]
    strengths = [crc32(text.strip().encode("utf-8", "replace")) for text, _ in atoms]
    return [
        "".join(text for text, _ in atoms[first:last])
        for first, last in split(sums, strengths, 0, len(atoms), bounds)
    ]


def _sentences(line: str, ends: re.Pattern[str] = _SENTENCE_END) -> Iterator[str]:
    start = 0
    for match in ends.finditer(line):
        yield line[start : match.end()]
        start = match.end()
    if start < len(line):
        yield line[start:]


def _slices(text: str, limit_tokens: int) -> Iterator[str]:
    """Slice a text to lengths that probably fit, so that a huge line is not counted repeatedly."""
    size = limit_tokens * _SLICE_CHARACTERS_PER_TOKEN
    start = 0
    while len(text) - start > size:
        end = _word_start(text, start + size // 2, start + size)
        yield text[start:end]
        start = end
    yield text[start:]


def _word_start(text: str, low: int, high: int) -> int:
    """Index in ``low..high`` after the last character outside of a word, else ``high``."""
    ends = [match.end() for match in _NOT_WORD.finditer(text, low, high)]
    return ends[-1] if ends else high


def _halve(texts: Sequence[str], limit_tokens: int, count: CountTokens) -> list[Atom]:
    atoms = _with_costs(texts, count)
    while any(_too_big(atom, limit_tokens) for atom in atoms):
        halves = [
            half
            for atom in atoms
            for half in (_halves(atom[0]) if _too_big(atom, limit_tokens) else (atom[0],))
        ]
        atoms = _with_costs(halves, count)
    return atoms


def _too_big(atom: Atom, limit_tokens: int) -> bool:
    return atom[1] > limit_tokens and len(atom[0]) > 1


def _halves(text: str) -> tuple[str, str]:
    middle = _word_start(text, len(text) // 4, max(len(text) // 2, 1))
    return text[:middle], text[middle:]


def _with_costs(texts: Sequence[str], count: CountTokens) -> list[Atom]:
    tokens = count(texts)
    return [
        (text, max(n, len(text) // SIZES.characters_per_token))
        for n, text in zip(tokens, texts, strict=True)
    ]


class _Cutter:
    """Joins atoms, each within the limit, to parts; each atom is visited once or twice."""

    def __init__(self, atoms: Sequence[Atom], limit_tokens: int, count: CountTokens) -> None:
        self._pending = [*reversed(atoms)]
        self._cost = sum(cost for _, cost in atoms)
        self._limit = limit_tokens
        self._count = count

    def parts(self) -> Iterator[str]:
        """Yield the parts in order."""
        while self._cost > self._limit and len(self._pending) > 1:
            yield self._part(self._parts_left())
        yield "".join(text for text, _ in reversed(self._pending))

    def _parts_left(self) -> int:
        fewest = ceil(self._cost / self._limit)
        return fewest if fewest <= _FEW_PARTS else ceil(self._cost / (self._limit * _FILLED))

    def _part(self, parts: int) -> str:
        """Take the first of ``parts``: it ends at the sentence end nearest to its equal share.

        If the rest would not fit into the other parts after any sentence end, it ends at a word.
        """
        share, least = (self._cost / parts, self._cost - (parts - 1) * self._limit)
        texts: list[str] = []
        cost = 0
        while cost + self._pending[-1][1] < share:
            cost += self._move_atom(texts)
        after = cost + self._pending[-1][1]
        fits = after <= self._limit
        if cost < least and not fits:
            fits = self._split_next(share - cost, least - cost, self._limit - cost)
        if not texts or (fits and (cost < least or after - share < share - cost)):
            self._move_atom(texts)
        return "".join(texts)

    def _move_atom(self, texts: list[str]) -> int:
        text, cost = self._pending.pop()
        self._cost -= cost
        texts.append(text)
        return cost

    def _split_next(self, share: float, least: int, most: int) -> bool:
        """Replace the next atom by two, cut at the word nearest to ``share``.

        Returns False if no word ends between ``least`` and ``most``.
        """
        text, cost = self._pending[-1]
        words = _WORD.findall(text)
        sums = list(accumulate(cost for _, cost in _with_costs(words, self._count)))
        ends = [end for end in range(1, len(words)) if least <= sums[end - 1] <= most]
        if not ends:
            return False
        end = min(ends, key=lambda end: abs(sums[end - 1] - share))
        halves = ("".join(words[:end]), "".join(words[end:]))
        head, tail = _with_costs(halves, self._count)
        if head[1] > most:
            return False
        self._pending[-1:] = [tail, head]
        self._cost += head[1] + tail[1] - cost
        return True
