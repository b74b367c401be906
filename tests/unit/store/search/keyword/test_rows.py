import random

import numpy as np
import pytest

from store.search.keyword.postings import Postings, term_hash
from store.search.keyword.rows import (
    BUNDLE_KEYS,
    WantedRows,
    from_rows,
    rows_of,
    terms_of_bundle,
)


def segment(terms: int, chunks: int = 300) -> Postings:
    """Segment in which term 0 is in every chunk, and each other one in a few chunks."""
    rng = random.Random(terms)
    rows = [(slot + 1, ["common"]) for slot in range(chunks)]
    for number in range(terms):
        for slot in rng.sample(range(chunks), 1 + number % 5):
            rows[slot][1].append(f"term{number}")
    return Postings.build(rows)


def shuffled(postings: Postings) -> list[tuple[int, bytes]]:
    rows = list(rows_of(postings))
    random.Random(0).shuffle(rows)
    return rows


def same(left: Postings, right: Postings) -> bool:
    names = ("chunk_ids", "lengths", "terms", "starts", "slots", "counts")
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in names)


@pytest.mark.parametrize("terms", [0, 1, 4_000, 9_000, 30_000])
def test_a_segment_survives_its_rows(terms: int) -> None:
    """A segment is restored from its rows in any order, of which it has far fewer than terms."""
    postings = segment(terms)
    rows = shuffled(postings)
    assert same(from_rows(postings.chunk_ids, postings.lengths, rows), postings)
    assert len(rows) <= 1 + max(64, terms // 16)
    assert len({key for key, _ in rows}) == len(rows)


def test_each_term_is_found_in_the_wanted_rows() -> None:
    """The keys of a term name a row that holds it, whatever the size of the segment."""
    for postings in (segment(100), segment(9_000)):
        rows = dict(rows_of(postings))
        terms = [*postings.terms.tolist()[::37], term_hash("common"), term_hash("absent"), 70]
        wanted = WantedRows(terms)
        read = [hit for key in wanted.keys if key in rows for hit in wanted.hits(key, rows[key])]
        found = {term: (slots.tolist(), counts.tolist()) for term, slots, counts in read}
        assert len(found) == len(read)
        expected = {term: postings.find(term) for term in terms}
        assert found == {
            term: (hits[0].tolist(), hits[1].tolist()) for term, hits in expected.items() if hits
        }


def test_a_frequent_term_has_a_row_of_its_own() -> None:
    """Its key is its hash; the key of a bundle is no such hash."""
    postings = segment(100)
    rows = dict(rows_of(postings))
    assert [key for key in rows if key not in BUNDLE_KEYS] == [term_hash("common")]
    bundled = [term for key in rows if key in BUNDLE_KEYS for term in terms_of_bundle(rows[key])]
    assert sorted([*bundled, term_hash("common")]) == postings.terms.tolist()


def test_a_hash_that_looks_like_a_key_is_in_a_bundle() -> None:
    """A frequent term whose hash is the key of a bundle is found, and so is the bundle."""
    slots = np.arange(200)
    postings = Postings.of_hashes(
        slots, np.full(200, 2, np.uint32), np.array([[70, 5 << 58]] * 200, np.int64).ravel()
    )
    rows = shuffled(postings)
    assert same(from_rows(postings.chunk_ids, postings.lengths, rows), postings)
    wanted = WantedRows([70])
    hits = [hit for key, data in rows if key in wanted.keys for hit in wanted.hits(key, data)]
    assert [(term, found.tolist()) for term, found, _ in hits] == [(70, slots.tolist())]


def test_rows_of_single_terms_are_read_too() -> None:
    """Segments from before there were bundles have a row for each term."""
    postings = segment(50)
    rows = []
    for term in postings.terms.tolist():
        slots, counts = postings.find(term) or (None, None)
        assert slots is not None
        assert counts is not None
        rows.append((term, slots.tobytes() + counts.tobytes()))
    assert same(from_rows(postings.chunk_ids, postings.lengths, rows), postings)
    wanted = WantedRows([term_hash("term7")])
    assert [hit[0] for key, data in rows if key in wanted.keys for hit in wanted.hits(key, data)]


@pytest.mark.parametrize("kept", [0, 4, 20, 60, -1])
def test_a_bundle_that_was_cut_off_is_refused(kept: int) -> None:
    """A damaged row raises an error that the doctor reports."""
    postings = segment(30)
    rows = [(key, data[:kept] if key in BUNDLE_KEYS else data) for key, data in rows_of(postings)]
    with pytest.raises(ValueError, match=r"buffer|bundle"):
        from_rows(postings.chunk_ids, postings.lengths, rows)


@pytest.mark.parametrize("first", [0, 8, 16, 24])
@pytest.mark.parametrize("byte", [b"\x00", b"\x7f", b"\xff"])
def test_a_bundle_with_overwritten_bytes_is_refused(first: int, byte: bytes) -> None:
    """Neither its number of terms nor their hashes can be wrong unnoticed."""
    postings = segment(4_000)
    rows = dict(rows_of(postings))
    key = max(rows.keys() & set(BUNDLE_KEYS))
    rows[key] = rows[key][:first] + byte * 8 + rows[key][first + 8 :]
    with pytest.raises(ValueError, match="bundle"):
        from_rows(postings.chunk_ids, postings.lengths, rows.items())
