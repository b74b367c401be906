"""Handlers of all events, in the order in which an event passes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from structlog.contextvars import bound_contextvars

from events.models import DocumentChanged, DocumentChunked, Event, QueryRequested
from events.names import Topic
from processors.deliveries import Delivery
from processors.wiring.worker import Services

__all__ = ["HANDLERS", "SUBSCRIPTIONS", "Handler"]

Handler = Callable[[Services, Sequence[Delivery[Any]]], Awaitable[None]]


async def index_documents(
    services: Services, deliveries: Sequence[Delivery[DocumentChanged]]
) -> None:
    """Make changes searchable by keyword, or refuse them with a reason."""
    await services.indexing.run(deliveries)


async def embed_documents(
    services: Services, deliveries: Sequence[Delivery[DocumentChunked]]
) -> None:
    """Make documents searchable by vector too."""
    await services.embedding.run(deliveries)


async def answer_queries(
    services: Services, deliveries: Sequence[Delivery[QueryRequested]]
) -> None:
    """Send one reply to each question."""
    for delivery in deliveries:
        with bound_contextvars(query_id=delivery.event.id, project=delivery.event.data.project):
            await services.answering.run(delivery)


HANDLERS: dict[type[Event], Handler] = {
    DocumentChanged: index_documents,
    DocumentChunked: embed_documents,
    QueryRequested: answer_queries,
}

SUBSCRIPTIONS: dict[Topic, type[Event]] = {
    Topic.CHANGED_LIVE: DocumentChanged,
    Topic.CHANGED_BULK: DocumentChanged,
    Topic.CHUNKED_LIVE: DocumentChunked,
    Topic.CHUNKED_BULK: DocumentChunked,
    Topic.QUERY: QueryRequested,
}
