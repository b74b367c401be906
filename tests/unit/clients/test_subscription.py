"""Parsing of an event stream, and the position from which it continues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from headrace_client import subscription as module
from headrace_client.errors import ServerDefect, Unavailable
from headrace_client.models import DocumentIndexed, DocumentRejected, Outcome
from headrace_client.subscription import Subscription

DEADLINE = timedelta(seconds=30)


def following(after: str | None = None) -> Subscription:
    return Subscription("docs", batch=None, prefix=None, after=after)


def indexed(uri: str, position: str) -> bytes:
    fields = {
        "token": "live:0:1-0",
        "event_id": "1",
        "project": "docs",
        "uri": uri,
        "change": "upsert",
        "outcome": "indexed",
    }
    data = json.dumps(fields, ensure_ascii=False).encode()
    return b"event: document.indexed\nid: " + position.encode() + b"\ndata: " + data + b"\n\n"


def taken(subscription: Subscription) -> list[Outcome]:
    def outcomes() -> Iterator[Outcome]:
        while (outcome := subscription.take()) is not None:
            yield outcome

    return list(outcomes())


def uris(subscription: Subscription) -> list[str | None]:
    return [outcome.uri for outcome in taken(subscription)]


def last_event_id(subscription: Subscription) -> str | None:
    return subscription.call().headers.get("Last-Event-ID")


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_parts_of_any_size_have_the_same_outcomes(size: int, line_end: bytes) -> None:
    """Characters that end a line elsewhere belong to the text."""
    uri = "one\u2028two\x85three\u00e4.md"
    stream = b"retry: 700\n\n: nothing new\nid: 0:1-0\n\n" + indexed(uri, "0:2-0")
    stream += b"event: batch.progress\ndata: {}\n\n" + indexed("b.md", "0:3-0")
    stream = stream.replace(b"\n", line_end)
    subscription = following()
    for start in range(0, len(stream), size):
        subscription.receive(stream[start : start + size])
    assert subscription.pause_s == 0.7
    assert uris(subscription) == [uri, "b.md"]
    assert last_event_id(subscription) == "0:3-0"


def test_the_position_is_that_of_the_outcome_that_was_taken() -> None:
    """A program that keeps it and ends has handled everything before."""
    subscription = following("0:1-0")
    assert last_event_id(subscription) == "0:1-0"
    subscription.receive(indexed("a.md", "0:2-0") + indexed("b.md", "0:3-0"))
    assert subscription.position == "0:1-0"
    subscription.take()
    assert subscription.position == "0:2-0"
    subscription.take()
    assert subscription.position == "0:3-0"


def test_the_position_passes_what_is_not_wanted() -> None:
    """Outcomes of others need not be read again."""
    subscription = following()
    assert last_event_id(subscription) is None
    subscription.receive(b": nothing new\nid: 0:5-0\n\n")
    assert subscription.position == "0:5-0"
    subscription.receive(indexed("a.md", "0:6-0") + b": nothing new\nid: 0:9-0\n\n")
    assert subscription.position == "0:5-0"
    subscription.take()
    assert subscription.position == "0:9-0"


def test_a_new_connection_continues_after_what_was_received() -> None:
    """A part of an event is forgotten, because the event comes again."""
    subscription = following()
    subscription.receive(indexed("a.md", "0:2-0") + indexed("b.md", "0:3-0")[:-5])
    assert last_event_id(subscription) == "0:2-0"
    subscription.receive(indexed("b.md", "0:3-0"))
    assert uris(subscription) == ["a.md", "b.md"]


def test_outcomes_have_their_types() -> None:
    subscription = following()
    problem = {"type": "PreconditionFailed", "detail": "it has another text", "retryable": False}
    rejected = json.dumps({"token": "live:0:1-0", "problem": problem, "news": 1})
    subscription.receive(f"event: document.rejected\nid: 0:2-0\ndata: {rejected}\n\n".encode())
    subscription.receive(b"event: document.praised\nid: 0:3-0\ndata: {}\n\n")
    subscription.receive(indexed("a.md", "0:4-0"))
    first, second = taken(subscription)
    assert isinstance(first, DocumentRejected)
    assert (first.problem.type, first.uri) == ("PreconditionFailed", None)
    assert isinstance(second, DocumentIndexed)
    assert second.created is False


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"[]", b'{"token": 1}'])
def test_an_unreadable_outcome_is_a_defect(data: bytes) -> None:
    with pytest.raises(ServerDefect, match="can't be read"):
        following().receive(b"event: document.indexed\ndata: " + data + b"\n\n")


def test_a_subscription_is_live_from_its_first_position() -> None:
    """Until then an outcome could be missed."""
    subscription = following()
    states = []
    for part in (b"retry: 2000\n\n", b": nothing new\nid: 0:5-0\n\n"):
        subscription.receive(part)
        states.append(subscription.is_live)
    subscription.call()
    assert [*states, subscription.is_live] == [False, True, False]


def test_connections_that_bring_nothing_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that brings a position ends the count."""
    clock = iter([10.0, 40.0, 50.0, 60.0, 90.0, 90.5])
    monkeypatch.setattr(module, "monotonic", lambda: next(clock))
    subscription = following()
    for _ in range(2):
        subscription.lose(DEADLINE, "reset")
    subscription.receive(b"id: 0:5-0\n\n")
    subscription.lose(DEADLINE, "reset")
    subscription.call()
    for _ in range(2):
        subscription.lose(DEADLINE, "reset")
    with pytest.raises(Unavailable, match="reset"):
        subscription.lose(DEADLINE, "reset")
