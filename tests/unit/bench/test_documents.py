"""Content of the load tests' changes."""

from __future__ import annotations

from collections import Counter

from bench.documents import changes_of_all_kinds, notes
from processors.chunking import cut
from processors.chunking.types import Source
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path

COUNT = 300


def test_notes_are_of_one_chunk_and_all_different() -> None:
    """Each note is a single chunk, and no text repeats, so that no vector comes from the cache."""
    contents = [one.data.content or "" for one in notes("p", COUNT)]
    assert len(set(contents)) == COUNT
    count = TokenCounter(tokenizer_path(None))
    assert all(
        len(cut(Source("n.md", one, "markdown"), 254, count).chunks) == 1 for one in contents
    )


def test_a_mixture_has_every_kind_of_change() -> None:
    """The mixture has new, edited and deleted notes, and modules."""
    changes = [one.data for one in changes_of_all_kinds("p", COUNT)]
    kinds = Counter(one.change for one in changes)
    assert kinds == {"upsert": 0.9 * COUNT, "delete": 0.1 * COUNT}
    assert sum(one.uri.endswith(".py") for one in changes) == 0.1 * COUNT
    edited = Counter(one.uri for one in changes if one.change == "upsert")
    assert max(edited.values()) > 1
