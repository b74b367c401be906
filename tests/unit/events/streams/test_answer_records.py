"""Records of answers: the passages of their chunks, and queries without a record."""

from __future__ import annotations

from fakeredis import FakeAsyncRedis

from events.names import Names
from events.streams.answer_records import AnswerRecord, AnswerRecords, JudgedPassage

NAMES = Names(partitions=3)
RECORD = AnswerRecord(
    project="docs",
    agent=None,
    text="wo nisten Störche?",
    mode="hybrid",
    filters={"kinds": ["markdown"]},
    results=[[[7], "a.md", 1, 4], [[8, 9], "b.md", 10, 30]],  # type: ignore[list-item]
)


def test_a_passage_has_the_rank_of_its_result() -> None:
    """A passage of several chunks is found by each of them."""
    record = AnswerRecord.from_bytes(RECORD.to_bytes())
    assert record == RECORD
    assert record.passage(7) == JudgedPassage("a.md", 1, 4, 1)
    assert record.passage(8) == record.passage(9) == JudgedPassage("b.md", 10, 30, 2)
    assert record.passage(10) is None


async def test_each_query_is_read_from_its_partition() -> None:
    """A query that left no record, also of an earlier worker, has none; the order is kept."""
    async with FakeAsyncRedis() as redis:
        values = {"1": RECORD.to_bytes(), "2": b"", "3": b"1"}
        for query_id, value in values.items():
            await redis.set(NAMES.replied(query_id, NAMES.query_partition(query_id)), value)
        read = await AnswerRecords(redis, NAMES).read(["4", "3", "1", "2"])
    assert read == [None, None, RECORD, None]
