"""Retention of compaction."""

from __future__ import annotations

import random
import tracemalloc
from datetime import timedelta

from events.models import Origin
from events.names import DocumentKey, LogPosition
from events.streams.changes import LoggedChange
from store.archive.claims import claim
from store.archive.compaction.retention import Record, Retention, position_at, time_of
from store.archive.event_files import line_of
from tests.support.changes import MOMENT, at, logged, moment, sha256_of

SOURCES = ("a" * 32, "b" * 32)


def record(change: LoggedChange) -> Record:
    (claimed,) = claim([change]).changes
    return Record.of(line_of(claimed).raw)


def test_a_record_says_which_documents_a_change_is_of() -> None:
    """A record names the documents of a change, two for a rename."""
    renamed = record(logged("b", 1, "text", change="rename", old_uri="a", agent="ann"))
    assert set(renamed.documents) == {("ann", "a"), ("ann", "b")}
    assert renamed.content == bytes.fromhex(sha256_of("text"))
    deleted = record(logged("a", 2, partition=3))
    assert (deleted.documents, deleted.content) == ((("", "a"),), None)
    assert deleted.log_position == (at(2), 3)


def test_positions_and_times() -> None:
    """Positions and times convert exactly to the millisecond."""
    exact = MOMENT + timedelta(milliseconds=1234)
    assert time_of(position_at(exact)) == exact
    assert time_of(at(1)) == moment(1)
    assert position_at(moment(1)) == at(1)


def test_a_document_takes_less_than_150_bytes() -> None:
    """The table doubles at 10,923 documents, and is then emptier than at any other number."""
    documents = 11_000
    retention = Retention(at(documents), ())
    tracemalloc.start()
    try:
        for number in range(documents):
            key = DocumentKey(
                "", f"docs/section-{number % 100}/a-page-with-a-long-name-{number}.md"
            )
            retention.learn(Record("docs", 0, at(number), (key,), None))
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used_bytes / documents < 150


def folded(records: list[Record], limit: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Last change of each document before the limit."""
    last: dict[tuple[str, str], tuple[int, int]] = {}
    for one in sorted(records, key=lambda one: one.rank):
        if one.position < limit:
            last |= dict.fromkeys(one.documents, one.log_position)
    return last


def test_the_state_at_the_limit_and_all_after_it_is_kept() -> None:
    """The state at the limit and all later changes are kept, in any order of reading."""
    for seed in range(50):
        chance = random.Random(seed)
        records = [record(random_change(chance)) for _ in range(40)]
        limit = at(chance.randrange(25))
        retention = Retention(limit, ())
        for one in [*records, *chance.sample(records, 10)]:
            retention.learn(one)
        kept = [one for one in records if retention.keeps(one)]
        assert folded(kept, limit) == folded(records, limit), seed
        assert [one for one in records if one.position >= limit] == [
            one for one in kept if one.position >= limit
        ]
        documents = {document for one in records for document in one.documents}
        assert sum(
            one.position < limit for one in {r.log_position: r for r in kept}.values()
        ) <= len(documents)


def random_change(chance: random.Random) -> LoggedChange:
    uri, other = chance.sample("abcd", 2)
    seconds = chance.randrange(20) + chance.random()
    match chance.randrange(3):
        case 0:
            return logged(uri, seconds)
        case 1:
            return logged(uri, seconds, "text", change="rename", old_uri=other)
        case _:
            revision = at(chance.randrange(20))
            origin = chance.choice([None, Origin(source=chance.choice(SOURCES), revision=revision)])
            return logged(uri, seconds, "text", partition=chance.randrange(2), origin=origin)


def test_what_never_took_effect_is_let_go_of() -> None:
    """A rejected change is removed, and the change before it is kept."""
    first, rejected = record(logged("a", 1, "a")), record(logged("a", 2, "b"))
    retention = Retention(at(9), {LogPosition(at(2), 0)})
    retention.learn(first)
    retention.learn(rejected)
    assert retention.keeps(first)
    assert not retention.keeps(rejected)


def test_a_newer_revision_of_a_source_is_kept_and_a_stalled_one_is_not() -> None:
    """A newer revision of a source is kept, and a stale one published later is not."""
    newer, stalled = (
        record(logged("a", seconds, "a", origin=Origin(source=SOURCES[0], revision=at(revision))))
        for seconds, revision in ((2, 1), (3, 0))
    )
    retention = Retention(at(9), ())
    retention.learn(newer)
    retention.learn(stalled)
    assert retention.keeps(newer)
    assert not retention.keeps(stalled)
