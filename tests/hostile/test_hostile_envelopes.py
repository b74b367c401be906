"""Malformed envelopes: parsed directly, and sent to a worker that serves others.

``HEADRACE_TEST_ENVELOPES=5000`` sends as many to the worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from events.models import DocumentChanged, DocumentIndexed, QueryRequested
from events.names import LogPosition, Names, Topic
from events.streams.entries import Entry
from runtime.errors import MalformedEvent
from tests.chaos.seeds import SEEDS_VARIABLE, count_of, size
from tests.support.databases import Database
from tests.support.hostile_envelopes import REPLY_TO, Envelope, corpus
from tests.support.hostile_worker import (
    REASONS,
    Innocents,
    Suspect,
    hostile_worker,
    reply_counts,
)
from tests.support.streams import read_stream
from tests.support.tally import Record

COUNT = size(2_000, thorough=5_000)
SENT = count_of("HEADRACE_TEST_ENVELOPES", size(1_000, thorough=2_000))
SEEDS = count_of(SEEDS_VARIABLE, 1)
"""Number of sets of envelopes; the first set is the same in every run."""
AT_ONCE = 500
"""Most envelopes that precede an innocent change in its lane."""

NAMES = Names()
MOST_RSS_BYTES = 600 * 2**20


def parsed(envelope: Envelope) -> DocumentChanged | QueryRequested | None:
    """The event, or None if the envelope must be refused."""
    event = QueryRequested if envelope.topic is Topic.QUERY else DocumentChanged
    try:
        return event.from_bytes(envelope.raw)
    except MalformedEvent as error:
        reason = str(error)
    assert reason.isprintable()
    assert len(reason) < 1_000
    return None


def test_every_envelope_is_an_event_or_refused(record: Record) -> None:
    """Parsing raises ``MalformedEvent`` in one printable line; events survive a round trip."""
    found: Counter[str] = Counter()
    for seed in range(SEEDS):
        for envelope in corpus(COUNT, seed):
            event = parsed(envelope)
            found["events" if event else "refused"] += 1
            assert event is None or type(event).from_bytes(event.to_bytes()) == event
    assert min(found["events"], found["refused"]) > COUNT / 10, "both must be tried"
    record("envelopes parsed", found)


async def test_a_worker_survives_them_and_serves_others(
    redis_url: str, database: Database, tmp_path: Path, record: Record
) -> None:
    """Each envelope is applied, answered or dead-lettered with a reason, and others are served."""
    envelopes = [one for seed in range(SEEDS) for one in corpus(SENT, seed)]
    async with hostile_worker(redis_url, database, tmp_path / "home") as suspect:
        innocents = Innocents(suspect.client)
        async with innocents.at_work():
            entries: dict[tuple[Topic, str], Envelope] = {}
            for start in range(0, len(envelopes), AT_ONCE):
                part = await sent(suspect.redis, envelopes[start : start + AT_ONCE])
                await suspect.passed(dict(part.keys()))
                entries |= part
        await suspect.settled()
        found = await fates(suspect, entries)
        assert suspect.peak_rss_bytes() < MOST_RSS_BYTES
        assert not suspect.defects()
    record(f"envelopes sent, {innocents.served} innocents served", found)


async def sent(redis: Redis, envelopes: Sequence[Envelope]) -> dict[tuple[Topic, str], Envelope]:
    """Add the envelopes to their streams; by topic and entry id."""
    async with redis.pipeline(transaction=False) as pipeline:
        for one in envelopes:
            fields: Any = one.fields
            pipeline.xadd(NAMES.stream(one.topic), fields)
        ids = await pipeline.execute()
    return {
        (one.topic, entry_id.decode()): one for one, entry_id in zip(envelopes, ids, strict=True)
    }


async def fates(suspect: Suspect, entries: dict[tuple[Topic, str], Envelope]) -> Counter[str]:
    """Count the result of each entry, and assert that it is an allowed one."""
    dead: dict[tuple[Topic, str], str] = {}
    for letter, kept in await suspect.letters():
        dead[Topic(letter.topic), letter.entry_id] = letter.error
        assert letter.error in REASONS, letter
        assert letter.detail.isprintable()
        assert letter.attempts == 1
        envelope = entries[Topic(letter.topic), letter.entry_id]
        assert kept.fields[b"event"] == envelope.fields.get(b"event", letter.event)
    outcomes = await outcomes_of(suspect.redis)
    replies = reply_counts(await read_stream(suspect.redis, REPLY_TO))
    found: Counter[str] = Counter()
    answered: set[str] = set()
    for (topic, entry_id), envelope in entries.items():
        event = parsed(envelope)
        reason = dead.get((topic, entry_id))
        if reason is not None:
            found[reason] += 1
            assert event is None or can_be_refused(envelope, event), (reason, envelope)
        elif isinstance(event, QueryRequested):
            found["answered"] += 1
            if "id" in event.model_fields_set:  # without an id no client waits
                answered.add(event.id)
        else:
            assert event is not None, f"{envelope} was neither refused nor dead-lettered"
            found[outcomes[token_of(topic, entry_id, envelope)]] += 1
    assert set(replies.values()) == {1}
    assert answered <= replies.keys()
    return found


def token_of(topic: Topic, entry_id: str, envelope: Envelope) -> str:
    """Token of the entry's outcome: of the asserted position, if there is one."""
    kept = envelope.fields.get(b"position")
    if kept is not None:
        return LogPosition(int(kept), 0).token
    return LogPosition.of_entry(topic.lane, 0, entry_id).token


def can_be_refused(envelope: Envelope, event: DocumentChanged | QueryRequested) -> bool:
    """True if the event may be refused for another reason than its form."""
    if isinstance(event, QueryRequested):
        return not NAMES.is_replies(event.data.reply_to, 0)
    return b"position" in envelope.fields or event.data.content_ref is not None


async def outcomes_of(redis: Redis) -> dict[str, str]:
    """Outcome by token of each indexed change."""
    entries: list[Entry] = await read_stream(redis, NAMES.stream(Topic.OUTCOME))
    events = [
        DocumentIndexed.from_bytes(one.fields[b"event"]) for one in entries if is_indexed(one)
    ]
    return {event.data.token: event.data.outcome for event in events}


def is_indexed(entry: Entry) -> bool:
    return b'"document.indexed"' in entry.fields[b"event"]
