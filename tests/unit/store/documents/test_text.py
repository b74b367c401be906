"""Text of documents, joined from chunks."""

from __future__ import annotations

import pytest

from content.detection import kind_of, language_of
from content.registry import EXTRACTORS
from events.models import content_hash
from processors.chunking.registry import cut
from processors.chunking.types import Source
from store.documents.text import TextPart, ending_of, joined_lines
from tests.support.chunking import LIMIT_TOKENS, counter
from tests.support.forking import ROOT

FILES = sorted(
    path
    for pattern in ("*.md", "docs/**/*", "store/**/*", "events/**/*.py", "migrations/**/*.sql")
    for path in ROOT.glob(pattern)
    if path.is_file() and path.suffix in {".md", ".json", ".py", ".sql"}
)


def parts_of(uri: str, text: str, limit_tokens: int = LIMIT_TOKENS) -> list[TextPart]:
    source = Source(uri, text, kind_of(uri, None, text), language_of(uri, None, text))
    chunks = cut(source, limit_tokens, counter()).chunks
    return [TextPart(part.start_line, part.end_line, part.content) for part in chunks]


def test_files_of_this_repository_are_joined_exactly() -> None:
    """Each file is joined from its chunks, line for line, with its last line end."""
    assert len(FILES) > 100
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if kind_of(path.name, None, text) in EXTRACTORS:
            continue  # its chunks are of its rendition
        parts = parts_of(path.name, text)
        joined = "\n".join(joined_lines(parts, 1))
        assert ending_of(joined, content_hash(text)) is not None, path
        assert joined + (ending_of(joined, content_hash(text)) or "") == text


@pytest.mark.parametrize("first", [1, 2, 3, 4, 5, 6, 7])
def test_a_part_begins_at_any_line(first: int) -> None:
    """Lines between chunks are blank, also before the first chunk and within a part."""
    parts = [TextPart(2, 3, "two\nthree"), TextPart(6, 7, "six\nseven")]
    lines = ["", "two", "three", "", "", "six", "seven"]
    assert (
        joined_lines([part for part in parts if part.end_line >= first], first)
        == lines[first - 1 :]
    )


def test_a_long_line_is_joined_from_its_parts() -> None:
    """The parts of a line that is longer than a chunk become one line again."""
    text = "first\n" + "word " * 900 + "end\nlast\n"
    parts = parts_of("a.txt", text, 64)
    assert len(parts) > 10
    assert "\n".join(joined_lines(parts, 1)) + "\n" == text


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_a_chunk_continues_the_line_on_which_the_last_one_ends(first: int) -> None:
    """Two chunks may meet within a line, also at its repeated words."""
    parts = [TextPart(1, 2, "one\ntwo "), TextPart(2, 4, "two\n\nfour, "), TextPart(4, 4, "four")]
    lines = ["one", "two two", "", "four, four"]
    assert (
        joined_lines([part for part in parts if part.end_line >= first], first)
        == lines[first - 1 :]
    )


@pytest.mark.parametrize("text", ["one\n \ntwo\n", "one\r\ntwo\r\n", "one\ntwo" + "\n" * 9])
def test_other_white_space_is_noticed(text: str) -> None:
    """Spaces in blank lines between chunks, and carriage returns, are not in the chunks."""
    parts = [TextPart(1, 1, "one"), TextPart(text.count("\n"), text.count("\n"), "two")]
    assert ending_of("\n".join(joined_lines(parts, 1)), content_hash(text)) is None


def test_a_document_without_chunks_has_no_lines() -> None:
    """An empty document has no lines, and is exact."""
    assert joined_lines([], 1) == []
    assert ending_of("", content_hash("")) == ""
    assert ending_of("", content_hash("\n\n")) == "\n\n"
