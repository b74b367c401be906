"""The filter of hashes that chunks have."""

from __future__ import annotations

import hashlib

import pytest

from store.purge.unused_vectors import UsedHashes


def hashes(start: int, count: int) -> bytes:
    return b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(start, start + count))


@pytest.mark.parametrize("count", [1, 100, 20_000])
def test_no_used_hash_is_missed_and_few_others_are_taken(count: int) -> None:
    """Every added hash is contained, and less than one in 100 of the others."""
    used = UsedHashes(count)
    used.add(hashes(0, count // 2))
    used.add(hashes(count // 2, count - count // 2))
    assert used.contain(hashes(0, count)).all()
    assert used.contain(hashes(10**6, 5_000)).sum() < 50


def test_an_empty_filter_contains_nothing() -> None:
    """A project without chunks uses no vector."""
    used = UsedHashes(0)
    used.add(b"")
    assert not used.contain(hashes(0, 100)).any()
