"""Event models and their transport: names, client, publishing, dead letters.

The transport that lets Faust read these streams is ``events.transport``.
"""

from events.asking import QueryRefused
from events.backlog import Backlog, read_backlog
from events.blocking_client import BlockingClient
from events.client import Client
from events.connection import ServerFacts, check_server, connect, redis_errors
from events.dead_letters import DeadLetter, DeadLetters
from events.models import (
    Citation,
    ContentReference,
    DocumentChange,
    DocumentChanged,
    DocumentEmbedded,
    DocumentEmbeddedData,
    DocumentIndexed,
    DocumentIndexedData,
    DocumentRejected,
    DocumentRejectedData,
    Event,
    Filters,
    Kind,
    LegScore,
    Origin,
    Problem,
    Query,
    QueryAnswer,
    QueryAnswered,
    QueryFailed,
    QueryFailedData,
    QueryRequested,
    Scores,
    SearchResult,
    Weights,
    content_hash,
    parse_event,
)
from events.names import GROUPS, Lane, Names, Position, Topic
from events.outbox import Outbox
from events.outcomes import Outcome, Outcomes
from events.publishing import ContentStore, Publisher, Receipt
from events.replying import Replies
from events.watermark import reached, read_watermark

__all__ = [
    "GROUPS",
    "Backlog",
    "BlockingClient",
    "Citation",
    "Client",
    "ContentReference",
    "ContentStore",
    "DeadLetter",
    "DeadLetters",
    "DocumentChange",
    "DocumentChanged",
    "DocumentEmbedded",
    "DocumentEmbeddedData",
    "DocumentIndexed",
    "DocumentIndexedData",
    "DocumentRejected",
    "DocumentRejectedData",
    "Event",
    "Filters",
    "Kind",
    "Lane",
    "LegScore",
    "Names",
    "Origin",
    "Outbox",
    "Outcome",
    "Outcomes",
    "Position",
    "Problem",
    "Publisher",
    "Query",
    "QueryAnswer",
    "QueryAnswered",
    "QueryFailed",
    "QueryFailedData",
    "QueryRefused",
    "QueryRequested",
    "Receipt",
    "Replies",
    "Scores",
    "SearchResult",
    "ServerFacts",
    "Topic",
    "Weights",
    "check_server",
    "connect",
    "content_hash",
    "parse_event",
    "reached",
    "read_backlog",
    "read_watermark",
    "redis_errors",
]
