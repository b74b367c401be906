"""Windows of documents, and the keys of contexts in the cache."""

from __future__ import annotations

from dataclasses import replace

from events.names import LogPosition
from processors.contexts.windows import MOST_CHUNKS, context_of, embedded_text, key_of, windows_of
from store.documents.contexts import StoredChunk, StoredDocument


def chunk(number: int, heading: str = "A", tokens: int = 10) -> StoredChunk:
    return StoredChunk(number, f"Text {number}.", (heading,), tokens, "m", "Title", waits=True)


def ids(windows: list[tuple[StoredChunk, ...]]) -> list[list[int]]:
    return [[each.chunk_id for each in window] for window in windows]


def test_a_document_that_fits_is_one_window() -> None:
    assert ids(windows_of([chunk(1, "A"), chunk(2, "B")], 20)) == [[1, 2]]
    assert windows_of([], 20) == []


def test_a_long_document_is_divided_between_sections() -> None:
    chunks = [chunk(1, "A"), chunk(2, "B"), chunk(3, "B"), chunk(4, "C"), chunk(5, "D")]
    assert ids(windows_of(chunks, 30)) == [[1, 2, 3], [4, 5]]
    assert ids(windows_of(chunks, 20)) == [[1], [2, 3], [4, 5]]


def test_a_long_section_is_divided_between_chunks() -> None:
    chunks = [*(chunk(number) for number in range(1, 6)), chunk(6, "B", 99), chunk(7, "C")]
    assert ids(windows_of(chunks, 20)) == [[1, 2], [3, 4], [5], [6], [7]]


def test_a_window_has_few_chunks() -> None:
    """An answer with a sentence for each chunk has to fit into the limits of the model."""
    windows = ids(windows_of([chunk(number) for number in range(1, 2 * MOST_CHUNKS + 2)], 10_000))
    assert [len(window) for window in windows] == [MOST_CHUNKS, MOST_CHUNKS, 1]


def test_a_key_depends_on_the_chunk_and_not_on_the_text_around_it() -> None:
    document = StoredDocument(1, "", "a.md", "Title", LogPosition(1, 0), [chunk(1), chunk(2)])
    first = chunk(1)
    key = key_of(document, first)
    same = replace(document, log_position=LogPosition(2, 0), chunks=[first])
    assert key_of(same, replace(first, chunk_id=9, tokens=1)) == key
    others = {
        key_of(replace(document, title="Other"), first),
        key_of(replace(document, agent="ada"), first),
        key_of(replace(document, uri="b.md"), first),
        key_of(document, replace(first, content="Other.")),
        key_of(document, replace(first, heading_path=("A", "B"))),
    }
    assert len(others - {key}) == 5


def test_the_context_is_embedded_between_header_and_content() -> None:
    document = StoredDocument(1, "", "a.md", "Title", LogPosition(1, 0), [chunk(1)])
    assert embedded_text(chunk(1), "About it.") == "Title\nAbout it.\nText 1."
    private = replace(document, agent="ada")
    hashes = {context_of(each, chunk(1), "x").content_hash for each in (document, private)}
    assert len(hashes) == 2
