"""Event models and their transport: names, client, publishing, dead letters.

The transport that lets Faust read these streams is ``events.transport``.
"""

from events.client.blocking import BlockingClient
from events.client.client import Client
from events.client.outcomes import Outcome, Outcomes
from events.client.publisher import ContentStore, Publisher, Receipt
from events.client.questions import QueryRefused
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
    Origin,
    Problem,
    Query,
    QueryAnswer,
    QueryAnswered,
    QueryFailed,
    QueryFailedData,
    QueryRequested,
    RetrieverScore,
    Scores,
    SearchResult,
    Weights,
    content_hash,
    parse_event,
)
from events.names import GROUPS, Lane, Names, Topic
from events.outbox import Outbox
from events.positions import LogPosition
from events.server.connection import ServerFacts, check_server, connect, redis_errors
from events.streams.backlog import Backlog, read_backlog
from events.streams.dead_letters import DeadLetter, DeadLetters
from events.streams.replies import Replies
from events.streams.watermark import reached, read_watermark

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
    "LogPosition",
    "Names",
    "Origin",
    "Outbox",
    "Outcome",
    "Outcomes",
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
    "RetrieverScore",
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
