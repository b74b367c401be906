"""The words of a generation, used to correct words of a query that occur in no document.

Words of one length are stored together in one row, so that a lookup reads a few rows by primary key
and compares them as a matrix. This needs no index, which row-level security could disable, and
never misses a near word.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import asyncpg
import numpy as np
import numpy.typing as npt

from store.postgres.named_queries import named
from store.search.keyword.tokenizer import MAX_LENGTH, MIN_LENGTH

__all__ = ["allowed_edits", "edit_distances", "near_words", "nearest"]

TWO_EDITS_FROM = 8
"""Words from this length may differ by two edits, shorter ones by one."""

MAX_NEAREST = 8
_MAX_UNSORTED_ROWS = 256
_BIT_OF_LETTER = 63
_QUERIES = named("keyword")


def allowed_edits(term: str) -> int:
    """Maximum number of edits between a query term and its correction."""
    if not term.isalpha() or not MIN_LENGTH <= len(term) <= MAX_LENGTH:
        return 0
    return 2 if len(term) >= TWO_EDITS_FROM else 1


async def nearest(connection: asyncpg.Connection, generation_id: int, term: str) -> list[str]:
    """The generation's words that are nearest to a term, all equally near; empty if none is near.

    The chunks that contained such a word may have been deleted.
    """
    edits = allowed_edits(term)
    if not edits:
        return []
    lengths = list(range(len(term) - edits, len(term) + edits + 1))
    rows = await connection.fetch(
        _QUERIES["read_vocabulary"], generation_id, lengths, _MAX_UNSORTED_ROWS
    )
    words = _by_length(rows, frozenset(lengths))
    near = near_words(words.values(), term, edits)
    best = min((distance for distance, _ in near), default=0)
    return sorted({word for distance, word in near if distance == best})[:MAX_NEAREST]


def _by_length(rows: Iterable[Mapping[str, object]], lengths: frozenset[int]) -> dict[int, str]:
    """Newline-terminated words of each length; unsorted words may repeat sorted ones."""
    texts: dict[int, list[str]] = defaultdict(list)
    unsorted: set[str] = set()
    for row in rows:
        text = str(row["words"])
        if isinstance(length := row["length"], int):
            texts[length].append(text)
        else:
            unsorted.update(text.split("\n"))
    for word in unsorted:
        if len(word) in lengths:
            texts[len(word)].append(word)
    return {length: "\n".join(parts) + "\n" for length, parts in texts.items()}


def near_words(texts: Iterable[str], term: str, edits: int) -> list[tuple[int, str]]:
    """Words of texts within ``edits`` of the term, each with its distance before it.

    A line feed ends each word of a text, and all words of one text have the same length.
    """
    candidates: list[str] = []
    for text in texts:
        width = text.index("\n") + 1
        matrix = np.frombuffer(text.encode("utf-32-le"), np.uint32).reshape(-1, width)[:, :-1]
        rows = np.flatnonzero(_may_be_near(matrix, term, edits)).tolist()
        candidates += [text[row * width : (row + 1) * width - 1] for row in rows]
    distances = edit_distances(candidates, term).tolist()
    return [pair for pair in zip(distances, candidates, strict=True) if pair[0] <= edits]


def _may_be_near(words: npt.NDArray[np.uint32], term: str, edits: int) -> npt.NDArray[np.bool_]:
    """Return for each row of code points whether few letters are in it or in the term alone.

    An edit takes at most one letter out of either set. Letters share the bits of 64, which can only
    hide a difference. It takes a fiftieth of the time of the distances, and few words remain.
    """
    bits = np.left_shift(np.uint64(1), (words & _BIT_OF_LETTER).astype(np.uint64))
    letters = np.bitwise_or.reduce(np.ascontiguousarray(bits.T), axis=0)
    own = np.uint64(0)
    for letter in term:
        own |= np.uint64(1 << (ord(letter) & _BIT_OF_LETTER))
    foreign = np.bitwise_count(letters & ~own)
    missing = np.bitwise_count(own & ~letters)
    is_near: npt.NDArray[np.bool_] = (foreign <= edits) & (missing <= edits)
    return is_near


def edit_distances(words: Sequence[str], term: str) -> npt.NDArray[np.uint8]:
    """Optimal string alignment distance of each word to the term.

    Edits are insertion, deletion, replacement, and the swap of two neighbours, after Damerau, "A
    technique for computer detection and correction of spelling errors", CACM 7(3), 1964. The
    distance of a shorter word is that after its last letter.
    """
    lengths = np.array([len(word) for word in words], np.intp)
    width = int(lengths.max(initial=0))
    padded = "".join(word.ljust(width, "\0") for word in words).encode("utf-32-le")
    columns = np.ascontiguousarray(np.frombuffer(padded, np.uint32).reshape(len(words), width).T)
    letters = [np.uint32(ord(letter)) for letter in term]
    before = previous = [np.full(len(words), i, np.uint8) for i in range(len(letters) + 1)]
    distances = [previous[-1]]
    for j in range(width):
        current = [np.full(len(words), j + 1, np.uint8)]
        for i, letter in enumerate(letters):
            differs = columns[j] != letter
            cell = np.minimum(previous[i + 1], current[i]) + np.uint8(1)
            cell = np.minimum(cell, previous[i] + differs)
            if i and j:
                swapped = (columns[j] == letters[i - 1]) & (columns[j - 1] == letter)
                cell = np.where(swapped, np.minimum(cell, before[i - 1] + np.uint8(1)), cell)
            current.append(cell)
        before, previous = previous, current
        distances.append(current[-1])
    return np.stack(distances)[lengths, np.arange(len(words))]
