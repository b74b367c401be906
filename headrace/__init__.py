"""Client of Headrace: publish changes of documents, wait for their outcomes, ask questions.

Start with ``BlockingClient`` or, in code with an event loop, ``Client``. All errors that they raise
are a ``HeadraceError``.
"""

from events.client.blocking import BlockingClient
from events.client.client import Client
from events.client.outcomes import Outcome
from events.client.publisher import Receipt
from events.client.questions import QueryRefused
from events.models import (
    Citation,
    DocumentChange,
    DocumentChanged,
    DocumentEmbedded,
    DocumentIndexed,
    DocumentRejected,
    Filters,
    Kind,
    QueryAnswer,
    SearchResult,
    Weights,
)
from events.names import Lane
from runtime.errors import HeadraceError, Unavailable, UsageError

__all__ = [
    "BlockingClient",
    "Citation",
    "Client",
    "DocumentChange",
    "DocumentChanged",
    "DocumentEmbedded",
    "DocumentIndexed",
    "DocumentRejected",
    "Filters",
    "HeadraceError",
    "Kind",
    "Lane",
    "Outcome",
    "QueryAnswer",
    "QueryRefused",
    "Receipt",
    "SearchResult",
    "Unavailable",
    "UsageError",
    "Weights",
]
