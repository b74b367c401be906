"""Servers, models and parsers: the parts that pipelines and operators' commands are built from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from content.detection import SizeLimits
from events.rate_limits import RateLimiter
from processors.answering.relevance import RelevanceStep
from processors.chunking.sandbox.pool import ChunkingPool
from processors.contexts.models import ContextModels
from processors.contexts.stage import ContextLimits, ContextStage
from processors.embedders.local.tokenizer import tokenizer_path
from processors.embedders.registry import Embedders
from processors.embedding.keyword_precedence import Precedence
from processors.embedding.single_flight import LiveEmbedding, SharedEmbedding
from processors.indexing.preparation import (
    Cutter,
    FetchContent,
    Preparer,
    Resolver,
    VectorStep,
)
from processors.indexing.sentence_distances import SentenceDistances
from processors.recipes import context_options, model_options, rate_limits, reranker_of
from processors.wiring.servers import Servers, open_servers
from runtime.cores import parser_processes
from runtime.settings import Settings
from store.documents.costs import RerankCosts
from store.search.index_builders import BuildLimits

__all__ = ["Foundation", "build_limits", "open_foundation"]


@dataclass(frozen=True)
class Foundation(Servers):
    """The servers, with models and parsers. Models start when they are first used.

    ``context_models`` are the language models that write contexts, and ``relevance`` is the step
    that reranks.
    """

    settings: Settings
    embedders: Embedders
    context_models: ContextModels
    relevance: RelevanceStep
    pool: ChunkingPool

    def context_stage(
        self, shared_embedding: SharedEmbedding, precedence: Precedence | None = None
    ) -> ContextStage:
        """Build the stage that writes contexts."""
        limits = self.settings.context
        return ContextStage(
            self.database,
            self.store,
            self.context_models,
            self.embedders,
            shared_embedding,
            ContextLimits(limits.window_tokens, limits.budget_usd_per_day),
            precedence,
        )

    def preparer(
        self,
        fetch: FetchContent,
        vectors: VectorStep | None = None,
        sharing: SharedEmbedding | None = None,
    ) -> Preparer:
        """Build the steps from a change to its write.

        Without ``vectors``, the write gets cached vectors only; the second stage makes the others.
        ``sharing`` embeds the sentences of documents that are cut by topic.
        """
        sharing = sharing or SharedEmbedding(self.embedders, self.pending)
        return Preparer(
            Resolver(
                fetch,
                SizeLimits(self.settings.max_document_bytes, self.settings.max_binary_bytes),
            ),
            Cutter(
                self.pool,
                self.embedders,
                SentenceDistances(self.store.known_vectors, sharing),
            ),
            vectors or LiveEmbedding(self.store, None),
        )


@asynccontextmanager
async def open_foundation(
    settings: Settings, role: str = "", **options: Any
) -> AsyncIterator[Foundation]:
    """Connect, and close everything in reverse order. Options and errors: see ``open_servers``.

    Neither models nor parsers are started.
    """
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(open_servers(settings, role, **options))
        rate_limiter = RateLimiter(servers.redis, servers.names, rate_limits(settings))
        embedders = Embedders(
            model_options(settings), servers.recipe, servers.store.model_width, rate_limiter
        )
        stack.push_async_callback(embedders.close)
        context_models = ContextModels(context_options(settings), rate_limiter)
        stack.push_async_callback(context_models.close)
        relevance = RelevanceStep(
            reranker_of(settings, rate_limiter),
            RerankCosts(servers.database),
            settings.rerank.candidates,
            settings.rerank.timeout,
        )
        stack.push_async_callback(relevance.close)
        pool = ChunkingPool(
            processes=parser_processes(settings),
            timeout=settings.chunking_limits.timeout,
            extraction_timeout=settings.chunking_limits.extraction_timeout,
            memory_bytes=settings.chunking_limits.memory_bytes,
            max_chunks=settings.chunking_limits.chunks,
            tokenizer_path=tokenizer_path(settings.model_directory),
        )
        stack.push_async_callback(pool.close)
        yield Foundation(
            **vars(servers),
            settings=settings,
            embedders=embedders,
            context_models=context_models,
            relevance=relevance,
            pool=pool,
        )


def build_limits(settings: Settings) -> BuildLimits:
    """Limits of builds of vector indexes."""
    chosen = settings.vector_search
    return BuildLimits(chosen.build_memory_bytes, chosen.build_processes)
