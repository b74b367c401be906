"""Construction of the answering pipeline, for workers and for the quality gate of replays."""

from __future__ import annotations

import asyncio
from functools import partial

from events.streams.replies import Replies
from events.streams.watermark import read_watermark
from processors.answering.freshness import Freshness
from processors.answering.pipeline import Answering
from processors.answering.query_vectors import QueryVectors
from processors.answering.results import Assembler
from processors.chunking.types import CountTokens
from processors.limits import Limits
from processors.recipes import RecipeNotices
from processors.wiring.foundation import Foundation
from store.search.search import Search

__all__ = ["WAITING_PER_WORKING", "answering_of"]

WAITING_PER_WORKING = 3
"""Questions that may wait for a change to be indexed, for each question being answered."""


def answering_of(
    base: Foundation,
    count_tokens: CountTokens,
    notices: RecipeNotices,
    ending: asyncio.Event | None = None,
) -> Answering:
    """Build the pipeline. Once ``ending`` is set, questions stop waiting for changes."""
    settings = base.settings
    search = Search(base.database, ef_search=settings.vector_search.ef_search)
    return Answering(
        search,
        QueryVectors(base.embedders),
        Freshness(
            base.store,
            base.pending,
            partial(read_watermark, base.redis, base.names),
            most_waiting=settings.query_concurrency * WAITING_PER_WORKING,
            ending=ending,
        ),
        Assembler(search, count_tokens),
        notices,
        Replies(base.redis, base.names),
        min(settings.default_deadline, settings.limits.query_deadline),
        settings.query_concurrency,
        Limits.of(settings),
    )
