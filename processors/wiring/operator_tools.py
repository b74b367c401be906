"""Construction of the tools of replay and doctor from the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from events.names import LogPosition
from processors.embedders.registry import full_name
from processors.embedding.requests import VectorRequests
from processors.embedding.single_flight import SharedEmbedding
from processors.embedding.stage import VectorStage
from processors.recipes import model_options
from processors.wiring.foundation import Foundation, build_limits, open_foundation
from runtime.settings import Settings
from store.generations.catalog import Generation
from store.generations.document_positions import DocumentPositions
from store.postgres.roles import OPERATOR
from store.search.maintenance import Maintenance
from store.search.vector_indexes import VectorIndexes

__all__ = ["OperatorTools", "open_operator_tools"]

_MOST_DOCUMENTS = 10_000
"""Documents of one request, which is one pipeline; embedders request the others later."""


@dataclass(frozen=True)
class OperatorTools(Foundation):
    """The foundation with an operator's rights, and the objects that maintain generations."""

    document_positions: DocumentPositions
    indexes: VectorIndexes
    maintenance: Maintenance

    def full_name(self, model: str) -> str:
        """Name that recipes use for a model.

        Raises:
            ConfigurationError: the model directory does not contain a model.
        """
        return full_name(model, model_options(self.settings))

    def vector_stage(self) -> VectorStage:
        """Build the stage that makes pending vectors in this process."""
        return VectorStage(self.pending, SharedEmbedding(self.embedders, self.pending))

    async def request_vectors(
        self,
        project: str,
        generation: Generation,
        log_positions: Collection[LogPosition] | None = None,
    ) -> None:
        """Request the pending vectors of a live generation from the embedders.

        ``log_positions``: those of the changes concerned, or None for the oldest 10,000 documents;
        embedders then request the others.

        Raises:
            Unavailable: Redis or Postgres cannot be reached.
        """
        limit = _MOST_DOCUMENTS if log_positions is None else None
        documents = [
            document
            for document in await self.pending.waiting(generation, limit)
            if log_positions is None
            or LogPosition(document.position, document.partition) in log_positions
        ]
        if documents:
            requests = VectorRequests(self.redis, self.names, self.pending)
            await requests.request(project, generation, documents)


@asynccontextmanager
async def open_operator_tools(settings: Settings, **options: Any) -> AsyncIterator[OperatorTools]:
    """Connect with the operator's role, and close everything in reverse order.

    Options: see ``open_servers``.

    Raises:
        ConfigurationError: versions, roles or settings are unsuitable.
        Unavailable: Redis or Postgres can't be reached.
    """
    async with open_foundation(settings, OPERATOR, **options) as base:
        database, owner_url = base.database, settings.owner_database_url or None
        exact_chunks = settings.vector_search.exact_chunks
        yield OperatorTools(
            **vars(base),
            document_positions=DocumentPositions(database),
            indexes=VectorIndexes(database, owner_url, exact_chunks, limits=build_limits(settings)),
            maintenance=Maintenance(
                database, owner_url, exact_chunks=exact_chunks, limits=build_limits(settings)
            ),
        )
