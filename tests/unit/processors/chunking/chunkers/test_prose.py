"""Chunks of prose: sections, paragraphs and turns."""

from __future__ import annotations

from tests.support.chunking import cut

LONG = "This sentence is about the weather in the mountains. " * 16 + "\n"


def test_markdown_sections_know_their_heading_path() -> None:
    """A chunk has the heading path of its section."""
    content = (
        f"# Guide\n\n{LONG}\n## Setup\n\n{LONG}\nWindows\n-------\n\n{LONG}\n### Paths\n\n{LONG}"
    )
    chunks = cut("a.md", content)
    assert [one.heading_path for one in chunks] == [
        ("Guide",),
        ("Guide", "Setup"),
        ("Guide", "Windows"),
        ("Guide", "Windows", "Paths"),
    ]
    assert chunks[3].header == "a.md > Guide > Windows"
    assert (chunks[1].start_line, chunks[1].end_line) == (5, 7)


def test_a_hash_in_a_fence_is_no_heading() -> None:
    """A hash in fenced code or front matter does not start a section."""
    content = f"---\ntitle: x\n# no\n---\n# Yes\n\n```sh\n# not a heading\n```\n{LONG}{LONG}"
    assert {one.heading_path for one in cut("a.md", content)} <= {(), ("Yes",)}


def test_a_table_that_fits_stays_whole() -> None:
    """A table that fits stays whole between paragraphs."""
    table = "| name | value |\n|---|---|\n" + "".join(f"| row {n} | {n} |\n" for n in range(14))
    chunks = cut("a.md", f"# T\n\n{LONG}\n{table}\n{LONG}")
    assert any(table.strip() in one.content for one in chunks)


def test_small_sections_are_merged_under_their_parent() -> None:
    """Small sections are merged into a chunk with their common heading path."""
    content = f"# Top\n\n{LONG}\n{LONG}\n## A\n\none\n\n## B\n\ntwo\n"
    last = cut("a.md", content)[-1]
    assert "## A" in last.content
    assert last.heading_path == ("Top",)


def test_rst_sections_rank_by_first_appearance() -> None:
    """The first adornment in a document is the outermost level."""
    content = f"=====\nTitle\n=====\n\n{LONG}\nPart\n----\n\n{LONG}\nDetail\n~~~~~~\n\n{LONG}"
    assert [one.heading_path for one in cut("a.rst", content)] == [
        ("Title",),
        ("Title", "Part"),
        ("Title", "Part", "Detail"),
    ]


def test_text_is_cut_between_paragraphs() -> None:
    """Each paragraph of about a chunk's length becomes one chunk."""
    assert [one.content for one in cut("a.txt", f"{LONG}\n{LONG}\n{LONG}")] == [
        LONG.rstrip("\n")
    ] * 3


def test_a_long_line_is_cut_between_sentences() -> None:
    """A paragraph in one line is cut between sentences."""
    chunks = cut("a.txt", LONG.strip() * 1 + " " + LONG.strip() + " " + LONG)
    assert len(chunks) > 1
    assert all(one.content.rstrip().endswith("mountains.") for one in chunks)
    assert {(one.start_line, one.end_line) for one in chunks} == {(1, 1)}


def test_a_conversation_is_cut_by_turn() -> None:
    """The speaker of a long turn is the header of its parts."""
    from processors.chunking import Source, cut
    from tests.support.chunking import LIMIT_TOKENS, check, counter

    content = f"Ada: {LONG}\nBob: short\n\nAda: {LONG}{LONG}"
    chunks = cut(Source("chat", content, "conversation"), LIMIT_TOKENS, counter()).chunks
    check(content, chunks, LIMIT_TOKENS)
    assert chunks[-1].header == "Ada"
    assert not any("Bob: short" in one.content and one.header for one in chunks)


def test_a_long_title_is_kept_and_one_over_its_share_is_shortened() -> None:
    """A title is kept in the header, and cut if it would take the space of the text."""
    from processors.chunking import Source, cut
    from tests.support.chunking import LIMIT_TOKENS, counter

    usual = "effects of wind on the mountains " * 5
    dense = "x1-" * 60
    headers = [
        cut(Source("a", LONG, "text", title=title), LIMIT_TOKENS, counter()).chunks[0].header
        for title in (usual, dense)
    ]
    assert headers[0] == usual.strip()
    assert headers[1]
    assert dense.startswith(headers[1])
