"""Construction of the pipelines from their foundation; each has one factory."""

from __future__ import annotations

import asyncio
from functools import partial

from events.client.outcomes import Outcomes
from events.client.republisher import Republishing
from events.names import Names
from events.streams.chunked import ChunkedStreams
from events.streams.groups import read_watermark
from events.streams.replies import Replies
from events.transport import Options
from processors.admission import Limits
from processors.answering.freshness import Freshness
from processors.answering.pipeline import Answering
from processors.answering.query_vectors import QueryVectors
from processors.answering.results import Assembler
from processors.archiving.archiver import Archiver, Intake
from processors.archiving.consumer import LogGroup
from processors.archiving.housekeeping import Archiving, Housekeeping
from processors.archiving.outbox_relay import OutboxRelay
from processors.chunking.types import CountTokens
from processors.content import KeptContents
from processors.embedding.keyword_precedence import Precedence
from processors.embedding.single_flight import LiveEmbedding, SharedEmbedding
from processors.indexing.intake import ChangeIntake
from processors.indexing.pipeline import Indexing
from processors.indexing.realigner import Realigner
from processors.indexing.reports import Reporter
from processors.recipes import RecipeNotices
from processors.wiring.foundation import Foundation
from processors.wiring.servers import Servers
from runtime.settings import Settings
from store.documents.pending import PendingVectors
from store.documents.watermarks import ReadWatermark, noted_watermark
from store.generations.catalog import Projects
from store.outbox import PostgresOutbox
from store.postgres.pool import Database
from store.purge.expiry import Expiry
from store.search.search import Search
from store.search.vector_indexes import VectorIndexes
from store.store import Store

__all__ = [
    "WAITING_PER_WORKING",
    "answering_of",
    "archiving_of",
    "indexing_of",
    "transport_options",
]

WAITING_PER_WORKING = 3
"""Questions that may wait for a change to be indexed, for each question being answered."""


def answering_of(
    base: Foundation,
    count_tokens: CountTokens,
    notices: RecipeNotices,
    ending: asyncio.Event | None = None,
    replica: Database | None = None,
) -> Answering:
    """Build the answering pipeline. Once ``ending`` is set, questions stop waiting for changes.

    With a ``replica``, whatever a question reads is read there.
    """
    settings = base.settings
    database = replica or base.database
    search = Search(database, ef_search=settings.vector_search.ef_search)
    watermark: ReadWatermark = partial(read_watermark, base.redis, base.names)
    return Answering(
        search,
        QueryVectors(base.embedders),
        Freshness(
            Store(database, base.recipe),
            PendingVectors(database, Projects(database)),
            watermark if replica is None else partial(noted_watermark, replica, watermark),
            max_waiting=settings.query_concurrency * WAITING_PER_WORKING,
            ending=ending,
        ),
        Assembler(search, count_tokens),
        notices,
        Replies(base.redis, base.names),
        min(settings.default_deadline, settings.limits.query_deadline),
        settings.query_concurrency,
        Limits.of(settings),
        base.relevance,
    )


def indexing_of(
    base: Foundation,
    notices: RecipeNotices,
    outcomes: Outcomes,
    sharing: SharedEmbedding | None,
    precedence: Precedence,
) -> Indexing:
    """Build the indexing pipeline. ``sharing`` is None if this process does not embed."""
    reporter = Reporter(outcomes, ChunkedStreams(base.redis, base.names))
    limits = Limits.of(base.settings)
    return Indexing(
        base.store,
        ChangeIntake(base.store, base.key_ring, base.pending, reporter, limits),
        base.preparer(
            KeptContents(base.store, base.archive).fetch,
            LiveEmbedding(base.store, sharing),
            sharing,
        ),
        notices,
        reporter,
        precedence,
        Realigner(base.redis, base.names, base.store),
    )


def transport_options(settings: Settings, names: Names) -> Options:
    """Return the options of a worker's transport over Redis."""
    return Options(
        prefix=names.prefix,
        partitions=names.partitions,
        shared_names=names,
        lease=settings.lease,
        max_deliveries=settings.max_deliveries,
        retry_delay=settings.retry_delay,
        shutdown_timeout=settings.shutdown_timeout,
    )


def archiving_of(servers: Servers, settings: Settings) -> Archiving:
    """Build the archiver with its housekeeping; it needs neither models nor parsers."""
    outbox = PostgresOutbox(servers.database, servers.projects)
    return Archiving(
        Archiver(
            servers.database,
            settings.stream_prefix,
            LogGroup(servers.redis, servers.names),
            servers.archive,
            Intake(servers.admission, outbox),
        ),
        Housekeeping(
            servers.redis,
            servers.names,
            servers.database,
            servers.archive,
            Expiry(
                servers.database,
                VectorIndexes(
                    servers.database,
                    settings.owner_database_url or None,
                    settings.vector_search.exact_chunks,
                ),
                settings.retention,
            ),
            stream_retention=settings.stream_retention,
            archive_retention=settings.archive_retention,
            compaction_interval=settings.retention.compaction_interval,
        ),
        OutboxRelay(
            Republishing(servers.redis, servers.names),
            outbox,
        ),
    )
