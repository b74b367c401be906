"""Digests of documents and indexes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pytest

from store.documents.digests import TOMBSTONE, DocumentDigest, document_digest, index_digest
from tests.support.writes import chunk_write, document_write

WRITE = document_write("a.md", 7, ["one", "two"], title="A", content_hash="00", commit="abc")
ROW = DocumentDigest("", "a.md", 7, 0, False, "00", document_digest(WRITE))


@pytest.mark.parametrize(
    "change",
    [
        {"title": None},
        {"title": ""},
        {"content_hash": "01"},
        {"kind": "markdown"},
        {"media_type": "text/markdown"},
        {"commit": None},
        {"permalink_template": "https://example.org/{path}"},
        {"collections": ("docs",)},
        {"metadata": {"tier": 1}},
        {"chunks": WRITE.chunks[:1]},
        {"chunks": WRITE.chunks[::-1]},
        {"chunks": ()},
    ],
)
def test_every_attribute_of_a_document_counts(change: dict[str, Any]) -> None:
    """Each stored attribute of a document changes its digest."""
    assert document_digest(replace(WRITE, **change)) != document_digest(WRITE)


@pytest.mark.parametrize(
    "change",
    [
        {"ordinal": 1},
        {"start_line": 2},
        {"end_line": 2},
        {"page": 1},
        {"tokens": 2},
        {"symbol": "f"},
        {"symbol": ""},
        {"heading_path": ("A",)},
        {"heading_path": ("",)},
        {"content": "One"},
        {"content_hash": bytes(32)},
    ],
)
def test_every_attribute_of_a_chunk_counts(change: dict[str, Any]) -> None:
    """Each stored attribute of a chunk changes the digest."""
    first, second = WRITE.chunks
    changed = replace(WRITE, chunks=(first._replace(**change), second))
    assert document_digest(changed) != document_digest(WRITE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"collections": ("b", "a", "b")}, {"collections": ("a", "b")}),
        ({"metadata": {"a": 1, "b": 2}}, {"metadata": {"b": 2, "a": 1}}),
        ({"metadata": {"n": 1.0}}, {"metadata": {"n": 1}}),
        ({"metadata": {"n": 1e22}}, {"metadata": {"n": 10**22}}),
        ({"metadata": {"n": 1e300}}, {"metadata": {"n": 10**300}}),
        ({"metadata": {"n": -0.0}}, {"metadata": {"n": 0}}),
        ({"event_id": "x", "position": 8}, {"published_at": datetime(2000, 1, 1, tzinfo=UTC)}),
        ({"generation_id": 4}, {"uri": "b.md"}),
    ],
)
def test_forms_that_are_stored_alike_are_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Order, repeats, spelling of numbers, position and time do not change the digest."""
    assert document_digest(replace(WRITE, **one)) == document_digest(replace(WRITE, **other))


def test_true_is_not_one_and_a_text_is_no_number() -> None:
    """Metadata values of different types have different digests."""
    values = (True, 1, "1", "true", "1.0")
    digests = {document_digest(replace(WRITE, metadata={"n": value})) for value in values}
    assert len(digests) == len(values)


def test_deleted_documents_have_one_digest() -> None:
    """All deleted documents have the same digest."""
    delete = document_write("a.md", 8, change="delete", kind="code", title="A")
    assert document_digest(delete) == TOMBSTONE != document_digest(document_write("a.md", 8))


def test_the_vector_does_not_count() -> None:
    """A document's digest does not depend on its vectors."""
    bare = tuple(one._replace(vector=None) for one in WRITE.chunks)
    assert document_digest(replace(WRITE, chunks=bare)) == document_digest(WRITE)


def test_texts_do_not_run_into_each_other() -> None:
    """The border between two chunks changes the digest."""
    apart = [chunk_write(0, "ab", content_hash=bytes(32)), chunk_write(1, "c")]
    other = [chunk_write(0, "a", content_hash=bytes(32)), chunk_write(1, "bc")]
    assert document_digest(replace(WRITE, chunks=tuple(apart))) != document_digest(
        replace(WRITE, chunks=tuple(other))
    )


def test_an_index_has_one_digest_in_any_order() -> None:
    """The digest of an index does not depend on the order of its documents."""
    rows = [ROW, replace(ROW, uri="b.md"), replace(ROW, agent="bob")]
    assert len({index_digest(some) for some in permutations(rows)}) == 1
    assert index_digest(rows) != index_digest(rows[:2])


@pytest.mark.parametrize(
    "change",
    [
        {"agent": "bob"},
        {"uri": "b.md"},
        {"position": 8},
        {"partition": 1},
        {"deleted": True},
        {"content_hash": None},
        {"digest": TOMBSTONE},
    ],
)
def test_every_field_of_a_row_counts_in_the_index(change: dict[str, Any]) -> None:
    """Each field of a row changes the digest of the index."""
    assert index_digest([replace(ROW, **change)]) != index_digest([ROW])
