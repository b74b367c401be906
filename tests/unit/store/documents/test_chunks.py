"""Newest change of a document, and the difference between its old and new chunks."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from store.documents.chunks import NewChunk, StoredChunk, compare
from store.documents.fence import newest
from store.types import DocumentWrite
from tests.support.writes import chunk_write, document_write

TEXTS = st.lists(st.sampled_from("abcd"), max_size=8)


def new_chunks(texts: list[str]) -> list[NewChunk]:
    return [NewChunk(chunk_write(ordinal, text), 1) for ordinal, text in enumerate(texts)]


def rows(texts: list[str]) -> list[StoredChunk]:
    return [
        StoredChunk(number, new.identity, new.location)
        for number, new in enumerate(new_chunks(texts))
    ]


@given(TEXTS, TEXTS)
def test_applying_a_difference_gives_the_new_chunks(before: list[str], after: list[str]) -> None:
    """Kept, added and removed rows give the new chunks, and no unchanged row is written."""
    difference = compare(rows(before), new_chunks(after))
    common = sum((Counter(before) & Counter(after)).values())
    assert len(difference.kept) == common
    assert len(difference.removed) == len(before) - common
    left = {row.chunk_id: (row.identity, row.location) for row in rows(before)}
    for chunk_id in difference.removed:
        del left[chunk_id]
    for chunk_id, location in difference.moved:
        assert left[chunk_id][1] != location
        left[chunk_id] = left[chunk_id][0], location
    result = sorted(left.values(), key=lambda pair: pair[1])
    result += [(new.identity, new.location) for new in difference.added]
    wanted = [(new.identity, new.location) for new in new_chunks(after)]
    assert sorted(result, key=lambda pair: pair[1][0]) == wanted


def test_a_chunk_under_another_symbol_or_model_is_another_chunk() -> None:
    """A chunk with another symbol or model counts as another chunk."""
    (row,) = rows(["a"])
    same = NewChunk(chunk_write(0, "a"), 1)
    renamed = NewChunk(chunk_write(0, "a", symbol="f"), 1)
    assert compare([row], [same]).kept == [(row.chunk_id, same)]
    assert compare([row], [renamed]).kept == []
    assert compare([row], [NewChunk(chunk_write(0, "a"), 2)]).kept == []


@st.composite
def logs(draw: st.DrawFn) -> list[DocumentWrite]:
    """Shuffled log of upserts, deletes and renames of three uris."""
    writes = []
    for position in range(1, draw(st.integers(1, 8)) + 1):
        uri, other = draw(st.permutations("xyz"))[:2]
        change = draw(st.sampled_from(["upsert", "delete", "rename"]))
        old_uri = other if change == "rename" else None
        writes.append(document_write(uri, position, change=change, old_uri=old_uri))
    return draw(st.permutations(writes))


@given(logs())
def test_the_newest_revision_of_each_uri_counts(writes: list[DocumentWrite]) -> None:
    """The newest change of each uri counts, in any order."""
    expected: dict[str, tuple[int, bool]] = {}
    for write in sorted(writes, key=lambda write: write.position):
        expected[write.uri] = write.position, write.change == "delete"
        if write.old_uri is not None:
            expected[write.old_uri] = write.position, True
    found = newest(writes)
    assert {uri: (one.write.position, one.deleted) for uri, one in found.items()} == expected
    assert list(found) == sorted(found)
