"""Table of contents: which event is handled by what, in the order in which things happen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from events.models import DocumentChanged, Event, QueryRequested
from processors.agents import Delivery
from processors.services import Services

__all__ = ["HANDLERS", "Handler"]

Handler = Callable[[Services, Sequence[Delivery[Any]]], Awaitable[None]]


async def index_documents(
    services: Services, deliveries: Sequence[Delivery[DocumentChanged]]
) -> None:
    """Changes become searchable chunks, or are refused with a reason."""
    await services.indexing.run(deliveries)


async def answer_query(services: Services, deliveries: Sequence[Delivery[QueryRequested]]) -> None:
    """A question gets its one reply."""
    for delivery in deliveries:
        await services.answering.run(delivery)


HANDLERS: dict[type[Event], Handler] = {
    DocumentChanged: index_documents,
    QueryRequested: answer_query,
}
