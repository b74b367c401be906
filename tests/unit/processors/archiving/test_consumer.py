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


def test_pages_of_small_entries_grow_by_steps() -> None:
    """While entries are small, pages become larger, but no page is much larger than all before."""
    sizes, batch = [], Batch()
    while not batch.is_full:
        sizes.append(batch.page_entries)
        entries = [Entry(f"{number}-0", {b"event": b"x" * 500}) for number in range(sizes[-1])]
        batch.add(STREAM, entries)
    assert sizes == [100, 100, 200, 400, 400, 400, 400]
    assert batch.count == MOST_ENTRIES


def test_one_large_entry_makes_the_next_page_small() -> None:
    """Pages are chosen by the largest entry, because others like it may follow."""
    batch = _batch(99, 300)
    batch.add(STREAM, [Entry("large-0", {b"event": b"x" * (MOST_BYTES // 40)})])
    assert batch.page_entries == 38


def test_a_page_has_some_entries_at_least() -> None:
    """A few small entries behind large ones are read in one request."""
    assert _batch(2, MOST_BYTES // 3).page_entries == 25
