"""Removes the data of deleted chunks from a generation's keyword index."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import numpy as np

from store.postgres.named_queries import named
from store.search.keyword.postings import Int64s, decode_inline, term_hash
from store.search.keyword.rows import BUNDLE_KEYS, terms_of_bundle
from store.search.keyword.segment_merge import find_wasteful, merge_segments, sort_words

__all__ = ["PurgedWords", "purge_words"]

_QUERIES = named("purge")


@dataclass(frozen=True, slots=True)
class PurgedWords:
    """Number of segments rewritten without deleted chunks, and of words dropped."""

    segments: int
    words: int


async def purge_words(connection: asyncpg.Connection, generation_id: int) -> PurgedWords:
    """Rewrite segments with deleted chunks, and drop words that no remaining segment holds.

    Requires a scope of ``EVERY_AGENT`` and the generation's maintenance lock. Writers and queries
    are not blocked: words written at the same time are not in the vocabulary yet, so none is lost.
    """
    while await sort_words(connection, generation_id):
        pass
    wasteful = await find_wasteful(connection, generation_id, max_dead_share=0.0)
    for segment_id in wasteful:
        await merge_segments(connection, generation_id, [segment_id])
    vocabulary = await connection.fetch(_QUERIES["whole_vocabulary"], generation_id)
    terms = await _terms(connection, generation_id)
    gone = 0
    for row in vocabulary:
        words = row["words"].split("\n")
        hashes = np.array([term_hash(word) for word in words], np.int64)
        kept = [words[i] for i in np.flatnonzero(np.isin(hashes, terms)).tolist()]
        if len(kept) < len(words):
            await _store(connection, generation_id, row["length"], kept)
        gone += len(words) - len(kept)
    return PurgedWords(len(wasteful), gone)


async def _terms(connection: asyncpg.Connection, generation_id: int) -> Int64s:
    """Hashes of all terms of a generation, sorted."""
    own = await connection.fetch(
        _QUERIES["distinct_terms"], generation_id, BUNDLE_KEYS.start, BUNDLE_KEYS.stop
    )
    bundles = await connection.fetch(
        _QUERIES["bundles"], generation_id, BUNDLE_KEYS.start, BUNDLE_KEYS.stop
    )
    parts = [np.array([row["term"] for row in own], np.int64)]
    parts += [terms_of_bundle(row["postings"]) for row in bundles]
    small = await connection.fetch(_QUERIES["inline_segments"], generation_id)
    parts += [decode_inline(row["documents"], row["postings"]).terms for row in small]
    return np.unique(np.concatenate(parts))


async def _store(
    connection: asyncpg.Connection, generation_id: int, length: int, words: list[str]
) -> None:
    if words:
        text = "\n".join(words)
        await connection.execute(_QUERIES["set_vocabulary"], generation_id, length, text)
    else:
        await connection.execute(_QUERIES["drop_vocabulary"], generation_id, length)
