"""Handlers of all events, in the order in which an event passes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from events.models import DocumentChanged, DocumentChunked, Event, QueryJudged, QueryRequested
from events.names import Topic
from processors.deliveries import Delivery
from processors.wiring.services import Services

__all__ = ["SUBSCRIPTIONS", "Handler", "handlers_of"]

Handler = Callable[[Sequence[Delivery[Any]]], Awaitable[None]]

SUBSCRIPTIONS: dict[Topic, type[Event]] = {
    Topic.CHANGED_LIVE: DocumentChanged,
    Topic.CHANGED_BULK: DocumentChanged,
    Topic.CHUNKED_LIVE: DocumentChunked,
    Topic.CHUNKED_BULK: DocumentChunked,
    Topic.QUERY: QueryRequested,
    Topic.JUDGED: QueryJudged,
}


def handlers_of(services: Services) -> Mapping[type[Event], Handler]:
    """Return the handler of each event: it takes a batch of deliveries and settles each."""
    return {
        DocumentChanged: services.indexing.run,  # searchable by keyword, or refused with a reason
        DocumentChunked: services.embedding.run,  # searchable by vector too
        QueryRequested: services.answering.run_all,  # one reply to each question
        QueryJudged: services.judgements.run,  # kept beside its question
    }
