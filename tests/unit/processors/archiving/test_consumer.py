"""Batches of the archiver: how many entries are read at once."""

from __future__ import annotations

from events.names import Lane, StreamKey, Topic
from events.streams.entries import Entry
from processors.archiving.consumer import MOST_BYTES, MOST_ENTRIES, Batch

STREAM = StreamKey(Topic.of_lane(Lane.LIVE), 0)


def _batch(entries: int, size_bytes: int) -> Batch:
    """Batch with entries of a size each."""
    batch = Batch()
    batch.add(
        STREAM, [Entry(f"{number}-0", {b"event": b"x" * size_bytes}) for number in range(entries)]
    )
    return batch


def test_small_entries_fill_a_batch_at_once() -> None:
    """After a page of small entries, the rest of a batch is read in one request."""
    assert 0 < Batch().page_entries < MOST_ENTRIES
    assert _batch(100, 500).page_entries == MOST_ENTRIES - 100


def test_large_entries_are_read_up_to_the_size_of_a_batch() -> None:
    """After a page of large entries, only as many are read as have room."""
    size = MOST_BYTES // 150
    assert _batch(100, size).page_entries == 50
    assert _batch(3, MOST_BYTES // 4).page_entries == 1


def test_one_entry_is_read_at_least() -> None:
    """An entry that is larger than the room that is left is read nevertheless."""
    batch = _batch(2, MOST_BYTES // 3)
    assert not batch.is_full
    batch.size_bytes = MOST_BYTES - 1
    assert batch.page_entries == 1
