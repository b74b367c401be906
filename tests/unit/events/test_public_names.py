"""What other packages may import from events."""

from __future__ import annotations

import events

PUBLIC = """
    GROUPS Backlog BlockingClient Citation Client ContentReference ContentStore DeadLetter
    DeadLetters DocumentChange DocumentChanged DocumentEmbedded DocumentEmbeddedData DocumentIndexed
    DocumentIndexedData DocumentRejected
    DocumentRejectedData Event Filters Kind Lane RetrieverScore Names Origin Outbox Outcome Outcomes
    LogPosition Problem Publisher Query QueryAnswer QueryAnswered QueryFailed QueryFailedData
    QueryRefused QueryRequested Receipt Replies Scores SearchResult ServerFacts Topic Weights
    check_server connect content_hash parse_event reached read_backlog read_watermark redis_errors
"""


def test_the_public_names_are_these() -> None:
    assert set(events.__all__) == set(PUBLIC.split())
    assert all(hasattr(events, name) for name in events.__all__)
