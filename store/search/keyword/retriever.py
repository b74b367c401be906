"""The keyword retriever: finds the chunks that score best for a query's text by BM25."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import asyncpg
import numpy as np
import numpy.typing as npt
import structlog

from store.postgres.named_queries import named
from store.search.filters import Visibility
from store.search.keyword.bm25 import Matches, ScoredChunks, Segment, TermHits, factors_of, score
from store.search.keyword.postings import (
    PACKED_BYTES,
    decode_chunks,
    decode_inline,
    term_hash,
)
from store.search.keyword.rows import BUNDLE_KEYS, WantedRows
from store.search.keyword.spelling import nearest
from store.search.keyword.tokenizer import DEFINES, terms
from store.search.patterns import Word
from store.types import ChunkPlace

__all__ = ["KeywordMatches", "KeywordRetriever", "Narrowed", "SegmentCache", "WordMatches"]

log = structlog.get_logger(__name__)

CACHE_BYTES = 256 * 2**20
CORRECTION_WEIGHT = 0.5
"""A correction of a misspelt word is weaker evidence than a word of the query itself."""

MAX_CORRECTIONS = 8
MAX_DEFINITIONS = 64
"""A name with more definitions than these says little about which of them is meant."""

NARROWED_SHARE = 1 / 16
"""Share of the chunks that have a word up to which only they are read, and not all chunks.

A more frequent word fills an answer sooner than its chunks are put into order.
"""

PHRASE_SHARE = 1 / 2
"""The same for the words of phrases: without them, a search may read all chunks."""

_MOST_BITS = 1 << 22
"""Most bits that are sent with a statement."""

_CACHE_SHARE_OF_EXAMPLES = 4
"""The segments of code examples get a cache of a quarter of the size: they are few."""

_THREAD_FROM_POSTINGS = 200_000
_ROUNDS = (1.05, 1.25, 4, 16)
"""Of how many times the chunks wanted the places are read, until enough of them are visible."""

_DESCRIBED_MARGIN = 1.2
"""Of so many times the chunks the beginning is read at once, since some may be hidden."""

_FILTERED_MARGIN = 2
"""The same with filters, which may hide many."""

_QUERIES = named("keyword")
_STATE = _QUERIES["state_as_row"].format(state=named("pending")["state"])


@dataclass(frozen=True, slots=True)
class KeywordMatches:
    """Chunk ids with BM25 scores, best first, and the terms that replaced misspelt ones.

    ``weights``: factor in BM25 of each term that was searched and occurs. ``definitions``: chunks
    that define a name asked for, in any case of its letters. ``places``: those of all these chunks,
    and of the other ones that were asked for.
    """

    ranked: list[tuple[int, float]]
    corrections: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    definitions: frozenset[int] = frozenset()
    places: Mapping[int, ChunkPlace] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WordMatches:
    """Chunks with words of a question, visible or not, with their scores.

    ``definitions``: those that define a name asked for. The generation was the live one if
    ``is_live``, and each of its chunks had its vector if ``is_covered``. For the other fields see
    ``KeywordMatches``.
    """

    scored: ScoredChunks
    corrections: Mapping[str, str]
    weights: Mapping[str, float]
    definitions: Sequence[int]
    is_live: bool
    is_covered: bool


class Narrowed(NamedTuple):
    """Ids, in order, of the chunks that have a term of a word.

    ``text``: as in ``Word``, but empty if it is such a term, since most of the chunks contain it.
    ``is_rare``: they are at most ``NARROWED_SHARE`` of all chunks.
    """

    chunk_ids: npt.NDArray[np.int64]
    text: str
    is_rare: bool

    def bits(self) -> tuple[bytes, int] | None:
        """Bytes with a bit for each id from the first one on, and this id.

        Returns None if there are no ids, or if the bits would be too many.
        """
        if not len(self.chunk_ids):
            return None
        first, last = int(self.chunk_ids[0]), int(self.chunk_ids[-1])
        if last - first >= _MOST_BITS:
            return None
        is_one = np.zeros(last - first + 1, np.bool_)
        is_one[self.chunk_ids - first] = True
        return np.packbits(is_one, bitorder="little").tobytes(), first


class KeywordRetriever:
    """Searches by words. One instance per process, because it caches segments."""

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self._cache = SegmentCache(cache_bytes)
        self._cache_of_examples = SegmentCache(cache_bytes // _CACHE_SHARE_OF_EXAMPLES)

    async def match(
        self,
        connection: asyncpg.Connection,
        text: str | Sequence[str],
        visibility: Visibility,
        defined: Sequence[str] = (),
    ) -> WordMatches:
        """All chunks with words of a text, or with some terms, and definitions of ``defined``.

        Raises:
            asyncpg.PostgresError: the server failed.
        """
        words = terms(text) if isinstance(text, str) else text
        weights: dict[str, float] = dict(Counter(words))
        keys = [DEFINES + name.lower() for name in defined]
        matches, state = await self._read_with_state(connection, visibility, [*weights, *keys])
        matches, defining = _apart(matches, keys)
        corrections = await self._correct(connection, weights, matches, visibility)
        for term, word in corrections.items():
            weights[word] = weights.get(word, 0.0) + weights.pop(term) * CORRECTION_WEIGHT
        if corrections:
            matches = await self._read(connection, visibility, weights)
        by_hash = {term_hash(term): weight for term, weight in weights.items()}
        scored = await _score(matches, by_hash)
        definitions: Sequence[int] = ()
        if defining:
            best = [chunk_id for chunk_id, _ in scored.best_of(defining, MAX_DEFINITIONS)]
            definitions = best or defining[:MAX_DEFINITIONS]
        factors = factors_of(matches, by_hash)
        occurring = {
            term: factors[term_hash(term)] for term in weights if term_hash(term) in factors
        }
        return WordMatches(scored, corrections, occurring, definitions, *state)

    async def visible(
        self,
        connection: asyncpg.Connection,
        matches: WordMatches,
        visibility: Visibility,
        limit: int,
        others: Sequence[int] = (),
        described: int = 0,
        described_others: Sequence[int] = (),
    ) -> KeywordMatches:
        """The best visible chunks of matches, and their visible definitions.

        Deleted or hidden chunks never appear. The places of the visible ones of ``others``, chunk
        ids, are read too. The places of the best ``described`` chunks, and those of
        ``described_others``, have the beginning of their text.

        Raises:
            asyncpg.PostgresError: the server failed.
        """
        ranked, places = await _visible(
            connection,
            matches.scored,
            visibility,
            limit,
            [*matches.definitions, *others],
            described,
            described_others,
        )
        definitions = frozenset(matches.definitions) & places.keys()
        return KeywordMatches(ranked, matches.corrections, matches.weights, definitions, places)

    async def narrowed(
        self,
        connection: asyncpg.Connection,
        visibility: Visibility,
        words: Sequence[Word],
    ) -> Narrowed:
        """The chunks that have a term of the rarest word.

        Deleted and hidden chunks are included, since their words are.
        """
        matches, having = await self._having_each(connection, visibility, words)
        rarest, word = min(zip(having, words, strict=True), key=lambda pair: len(pair[0]))
        text = "" if word.text in word.terms else word.text
        return Narrowed(rarest, text, len(rarest) <= NARROWED_SHARE * matches.chunks)

    async def having_all(
        self, connection: asyncpg.Connection, visibility: Visibility, words: Sequence[Word]
    ) -> list[int] | None:
        """Ids of the chunks that have a term of each word.

        Returns None if they are more than ``PHRASE_SHARE`` of all chunks. Deleted and hidden chunks
        are included, since their words are.
        """
        matches, having = await self._having_each(connection, visibility, words)
        ids = reduce(partial(np.intersect1d, assume_unique=True), having)
        return ids.tolist() if len(ids) <= PHRASE_SHARE * matches.chunks else None

    async def with_definitions(
        self, connection: asyncpg.Connection, visibility: Visibility
    ) -> Visibility:
        """The same visibility, where the chunks pass that define the symbols of its filters."""
        keys = [DEFINES + name.lower() for name in visibility.defined]
        if not keys:
            return visibility
        matches = await self._read(connection, visibility, keys)
        candidates = _having(matches, frozenset(map(term_hash, keys))).tolist()
        return await visibility.with_definitions(connection, candidates)

    async def _having_each(
        self, connection: asyncpg.Connection, visibility: Visibility, words: Sequence[Word]
    ) -> tuple[Matches, list[npt.NDArray[np.int64]]]:
        """Read the chunks that have a term of a word, for each of the words."""
        names = dict.fromkeys(term for word in words for term in word.terms)
        matches = await self._read(connection, visibility, names)
        return matches, [_having(matches, frozenset(map(term_hash, word.terms))) for word in words]

    async def rarest(
        self,
        connection: asyncpg.Connection,
        visibility: Visibility,
        words: Iterable[str],
        limit: int,
    ) -> tuple[str, ...]:
        """Terms of highest IDF that occur in several chunks, deleted ones included."""
        by_hash = {term_hash(word): word for word in words}
        frequencies: Counter[int] = Counter()
        for segment in (await self._read(connection, visibility, ())).segments:
            frequencies.update({hit.term: len(hit.slots) for hit in _inline(segment, [*by_hash])})
        wanted = WantedRows(by_hash)
        rows = await connection.fetch(
            _QUERIES["size_postings"],
            visibility.generation_id,
            wanted.keys,
            visibility.of_examples,
            BUNDLE_KEYS.start,
            BUNDLE_KEYS.stop,
        )
        for row in rows:
            if row["bundle"] is None:
                frequencies[row["term"]] += row["bytes"] // PACKED_BYTES
                continue
            for term, slots, _ in wanted.hits(row["term"], row["bundle"]):
                frequencies[term] += len(slots)
        shared = [(count, by_hash[term]) for term, count in frequencies.items() if count > 1]
        return tuple(word for _, word in sorted(shared)[:limit])

    async def _read(
        self, connection: asyncpg.Connection, visibility: Visibility, words: Iterable[str]
    ) -> Matches:
        """Read the segments of the text, or those of the code examples."""
        return (await self._read_rows(connection, visibility, words, _QUERIES["read_segments"]))[0]

    async def _read_with_state(
        self, connection: asyncpg.Connection, visibility: Visibility, words: Iterable[str]
    ) -> tuple[Matches, tuple[bool, bool]]:
        """Read segments, and whether the generation is live and covered, in one round trip."""
        sql = f"{_QUERIES['read_segments']}\nunion all\n{_STATE}"
        matches, rows = await self._read_rows(connection, visibility, words, sql)
        [state] = [row for row in rows if row["segment_id"] is None]
        return matches, (bool(state["chunks"]), bool(state["terms"]))

    async def _read_rows(
        self,
        connection: asyncpg.Connection,
        visibility: Visibility,
        words: Iterable[str],
        sql: str,
    ) -> tuple[Matches, list[asyncpg.Record]]:
        generation_id, of_examples = visibility.generation_id, visibility.of_examples
        cache = self._cache_of_examples if of_examples else self._cache
        hashes = [term_hash(word) for word in words]
        cached = cache.get(generation_id)
        wanted = WantedRows(hashes)
        rows = await connection.fetch(sql, generation_id, list(cached), wanted.keys, of_examples)
        heads = [row for row in rows if row["term"] is None and row["segment_id"] is not None]
        segments = {
            row["segment_id"]: cached.get(row["segment_id"]) or _decode(row) for row in heads
        }
        cache.put(generation_id, segments)
        large = _group(wanted, [row for row in rows if row["term"] is not None])
        matches = Matches(
            segments=list(segments.values()),
            hits=[
                large.get(segment_id, []) if segment.inline is None else _inline(segment, hashes)
                for segment_id, segment in segments.items()
            ],
            total_terms=sum(row["terms"] for row in heads),
        )
        return matches, rows

    async def _correct(
        self,
        connection: asyncpg.Connection,
        asked: Iterable[str],
        matches: Matches,
        visibility: Visibility,
    ) -> dict[str, str]:
        """For each term that occurs nowhere, the most frequent of the nearest words that do.

        Only words of visible chunks are used, so that private words of other agents do not leak.
        """
        if not matches.segments:
            return {}
        frequencies = matches.document_frequencies
        missing = [term for term in asked if term_hash(term) not in frequencies][:MAX_CORRECTIONS]
        near = {term: await nearest(connection, visibility.generation_id, term) for term in missing}
        candidates = {word for words in near.values() for word in words}
        if not candidates:
            return {}
        occurring = await self._read(connection, visibility, candidates)
        frequency = occurring.document_frequencies
        corrections: dict[str, str] = {}
        for term, words in near.items():
            for word in sorted(words, key=lambda word: -frequency.get(term_hash(word), 0)):
                if await _is_seen(connection, occurring, word, visibility):
                    corrections[term] = word
                    break
        return corrections


def _having(matches: Matches, hashes: frozenset[int]) -> npt.NDArray[np.int64]:
    """Ids of the chunks that have one of some terms."""
    parts = [
        segment.chunk_ids[hit.slots]
        for segment, hits in zip(matches.segments, matches.hits, strict=True)
        for hit in hits
        if hit.term in hashes
    ]
    if not parts:
        return np.empty(0, np.int64)
    ids = np.concatenate(parts)
    ids.sort()
    is_new = np.ones(len(ids), np.bool_)
    is_new[1:] = ids[1:] != ids[:-1]
    return ids[is_new]  # np.unique takes ten times as long


def _apart(matches: Matches, words: Iterable[str]) -> tuple[Matches, list[int]]:
    """Take some terms out of matches; return the rest, and the chunks that have these terms."""
    hashes = frozenset(term_hash(word) for word in words)
    if not hashes:
        return matches, []
    rest = [[hit for hit in hits if hit.term not in hashes] for hits in matches.hits]
    return replace(matches, hits=rest), _having(matches, hashes).tolist()


def _decode(row: Mapping[str, Any]) -> Segment:
    chunk_ids, lengths = decode_chunks(row["documents"])
    inline = None
    if row["postings"] is not None:
        inline = decode_inline(row["documents"], row["postings"])
    return Segment(chunk_ids, lengths, inline)


def _group(wanted: WantedRows, rows: Iterable[Mapping[str, Any]]) -> dict[int, list[TermHits]]:
    grouped: dict[int, list[TermHits]] = defaultdict(list)
    for row in rows:
        hits = wanted.hits(row["term"], row["postings"])
        grouped[row["segment_id"]] += [TermHits(*hit) for hit in hits]
    return grouped


def _inline(segment: Segment, hashes: Sequence[int]) -> list[TermHits]:
    if segment.inline is None:
        return []
    hits = ((term, segment.inline.find(term)) for term in hashes)
    return [TermHits(term, *hit) for term, hit in hits if hit is not None]


async def _score(matches: Matches, weights: Mapping[int, float]) -> ScoredChunks:
    """Score matches, in a thread if it would block the event loop."""
    if sum(matches.document_frequencies.values()) < _THREAD_FROM_POSTINGS:
        return score(matches, weights)
    return await asyncio.to_thread(score, matches, weights)


async def _is_seen(
    connection: asyncpg.Connection, matches: Matches, word: str, visibility: Visibility
) -> bool:
    """Return whether a chunk with this word is visible."""
    wanted = term_hash(word)
    weights = {term: float(term == wanted) for term in matches.document_frequencies}
    if wanted not in weights:
        return False
    scored = await _score(matches, weights)
    seen, _ = await _visible(connection, scored, visibility, 1)
    return bool(seen)


async def _visible(
    connection: asyncpg.Connection,
    scored: ScoredChunks,
    visibility: Visibility,
    limit: int,
    others: Sequence[int] = (),
    described: int = 0,
    described_others: Sequence[int] = (),
) -> tuple[list[tuple[int, float]], dict[int, ChunkPlace]]:
    """The best visible chunks, and the places of these and of the visible ones of ``others``.

    It checks the best chunks first, then more of them, then all. Without filters, few are hidden.
    """
    places: dict[int, ChunkPlace] = {}
    with_text = dict.fromkeys(described_others)
    unread = dict.fromkeys(others)
    read: set[int] = set()
    margin = _DESCRIBED_MARGIN if visibility.is_plain else _FILTERED_MARGIN
    for factor in _ROUNDS if visibility.is_plain else _ROUNDS[1:]:
        count = math.ceil(factor * limit)
        best = scored.best(count)
        unread |= dict.fromkeys(chunk_id for chunk_id, _ in best if chunk_id not in read)
        with_text |= dict.fromkeys(at for at, _ in best[: math.ceil(margin * described)])
        places |= await visibility.among(connection, list(unread), list(with_text))
        read |= unread.keys()
        unread.clear()
        kept = [pair for pair in best if pair[0] in places][:limit]
        if len(kept) == limit or len(best) < count:
            break
    else:
        best = scored.best_of(await visibility.every(connection), limit)
        missing = [chunk_id for chunk_id, _ in best if chunk_id not in read]
        places |= await visibility.among(connection, missing)
        kept = [pair for pair in best if pair[0] in places]
    late = [chunk_id for chunk_id, _ in kept[:described] if chunk_id not in with_text]
    places |= await visibility.among(connection, late, late)
    shown = {chunk_id for chunk_id, _ in kept}.union(others) & places.keys()
    return kept, {chunk_id: places[chunk_id] for chunk_id in shown}


MAX_GENERATIONS = 1024
"""The limit eventually evicts dropped generations, also those without segments."""

Segments = Mapping[int, Segment]
"""Segments of a generation by id."""


class SegmentCache:
    """Segments of the generations searched last, up to a total size and a number of generations."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._generations: OrderedDict[int, tuple[int, Segments]] = OrderedDict()

    def get(self, generation_id: int) -> Segments:
        """Cached segments of the generation; some may be missing, or may have been merged since."""
        if generation_id not in self._generations:
            return {}
        self._generations.move_to_end(generation_id)
        return self._generations[generation_id][1]

    def put(self, generation_id: int, segments: Segments) -> None:
        """Replace the segments of the generation, and evict generations that no longer fit."""
        size_bytes = sum(segment.size_bytes for segment in segments.values())
        self._generations[generation_id] = (size_bytes, segments)
        self._generations.move_to_end(generation_id)
        while self.size_bytes > self._limit_bytes or len(self._generations) > MAX_GENERATIONS:
            self._generations.popitem(last=False)

    @property
    def size_bytes(self) -> int:
        """Approximate memory in use."""
        return sum(size_bytes for size_bytes, _ in self._generations.values())
