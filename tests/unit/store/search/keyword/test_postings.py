import random

import numpy as np
import pytest

from store.search.keyword.postings import (
    MAX_CHUNKS,
    Postings,
    decode_inline,
    encode_chunks,
    encode_inline,
    pack,
    term_hash,
    unpack,
)

Rows = list[tuple[int, list[str]]]


def some_rows(seed: int, first_id: int = 1, chunks: int = 40) -> Rows:
    rng = random.Random(seed)
    words = [f"word{i}" for i in range(60)]
    return [
        (
            first_id + i,
            [words[min(int(rng.expovariate(0.1)), 59)] for _ in range(rng.randrange(50))],
        )
        for i in range(chunks)
    ]


def as_table(postings: Postings) -> dict[int, dict[int, int]]:
    """Table of chunk id, term and count, built by plain loops."""
    table: dict[int, dict[int, int]] = {chunk_id: {} for chunk_id in postings.chunk_ids.tolist()}
    for term in postings.terms.tolist():
        hits = postings.find(term)
        assert hits
        for slot, count in zip(*hits, strict=True):
            table[int(postings.chunk_ids[slot])][term] = int(count)
    return table


def expected(rows: Rows) -> dict[int, dict[int, int]]:
    return {
        chunk_id: {term_hash(term): min(terms.count(term), 255) for term in set(terms)}
        for chunk_id, terms in rows
    }


def test_hash_of_a_term_never_changes() -> None:
    """The hash of a term is stable across versions, because the database stores it."""
    assert term_hash("redis") == -2786319583242363915


def test_an_index_holds_what_was_put_in() -> None:
    """Every count of every term of every chunk is stored."""
    rows = some_rows(1)
    assert as_table(Postings.build(rows)) == expected(rows)


def test_counts_stop_at_one_byte() -> None:
    """A term of a chunk counts at most 255 times."""
    rows: Rows = [(7, ["a"] * 256)]
    assert as_table(Postings.build(rows)) == {7: {term_hash("a"): 255}}


def test_terms_whose_hashes_differ_only_at_the_end_are_distinguished() -> None:
    """Terms whose hashes differ only in low bits are kept apart."""
    near = np.array([7 << 16, (7 << 16) + 1, 7 << 16, -3, (7 << 16) + 1], np.int64)
    postings = Postings.of_hashes(np.array([5, 6]), np.array([3, 2], np.uint32), near)
    assert as_table(postings) == {5: {7 << 16: 2, (7 << 16) + 1: 1}, 6: {-3: 1, (7 << 16) + 1: 1}}


def test_merging_equals_building_at_once() -> None:
    """A merge gives the same postings as building at once."""
    first, second = some_rows(1), some_rows(2, first_id=1000)
    merged = Postings.merge([Postings.build(first), Postings.build(second)])
    assert as_table(merged) == expected(first + second)
    assert merged.lengths.sum() == sum(len(terms) for _, terms in first + second)


def test_merging_drops_the_dead() -> None:
    """A merge drops postings of deleted chunks, and terms that have no posting left."""
    rows = [*some_rows(1), (500, ["lonely"])]
    alive = np.array([chunk_id for chunk_id, _ in rows if chunk_id % 3], np.int64)
    alive = alive[alive != 500]
    merged = Postings.merge([Postings.build(rows)], alive)
    assert as_table(merged) == expected([row for row in rows if row[0] in set(alive.tolist())])
    assert merged.find(term_hash("lonely")) is None


@pytest.mark.parametrize("rows", [some_rows(3), [(1, [])], [(1, []), (2, ["x"])]])
def test_a_small_segment_survives_its_row(rows: Rows) -> None:
    """Encoding and decoding a small segment changes nothing."""
    postings = Postings.build(rows)
    decoded = decode_inline(encode_chunks(postings), encode_inline(postings))
    assert as_table(decoded) == as_table(postings)
    np.testing.assert_array_equal(decoded.lengths, postings.lengths)


def test_postings_of_a_term_survive_packing() -> None:
    """Slots use all 16 bits."""
    slots, counts = np.array([0, 3, 65535], np.uint16), np.array([1, 255, 7], np.uint8)
    unpacked = unpack(pack(slots, counts))
    np.testing.assert_array_equal(unpacked[0], slots)
    np.testing.assert_array_equal(unpacked[1], counts)


def test_a_segment_has_a_largest_size() -> None:
    """A segment with more chunks than 16 bits can number is refused."""
    with pytest.raises(ValueError, match="at most 65536"):
        Postings.build([(i, []) for i in range(MAX_CHUNKS + 1)])


def test_marks_are_postings_without_a_count() -> None:
    """Marks are found and survive a merge, and lengths and other postings stay as they are."""
    plain, other = Postings.build(some_rows(1)), Postings.build(some_rows(2, first_id=1000))
    marked = plain.marked([(7, 3), (-9, 0), (7, 1), (7, 1), (1 << 62, 39)])
    merged = Postings.merge([other, marked])
    for postings in (marked, merged):
        table = as_table(postings)
        assert {chunk_id: row.pop(7) for chunk_id, row in table.items() if 7 in row} == {2: 0, 4: 0}
        assert (table[1].pop(-9), table[40].pop(1 << 62)) == (0, 0)
        rows = [row for row in (*some_rows(1), *some_rows(2, first_id=1000)) if row[0] in table]
        assert table == expected(rows)
    assert marked.lengths.tolist() == plain.lengths.tolist()
    assert plain.marked([]) is plain
    assert as_table(Postings.build([]).marked([])) == {}
