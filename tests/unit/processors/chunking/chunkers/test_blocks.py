"""Fences and tables: whole where they fit, else readable parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content.places import rendered
from processors import chunking
from processors.chunking import Chunk, Source
from tests.support.chunking import LIMIT_TOKENS, counter, cut

SENTENCE = "This sentence is about the weather in the mountains. "
_MARK = re.compile(r"\s*```")


def code(lines: int, first: int = 0) -> str:
    return "\n".join(f"value_{n} = compute({n}, other_{n})" for n in range(first, first + lines))


def fence(lines: int, info: str = "python") -> str:
    return f"```{info}\n{code(lines)}\n```"


def table(rows: int) -> str:
    body = "\n".join(f"| item {n} | {n * 17} | about the item {n} |" for n in range(rows))
    return f"| Name | Price | Remark |\n|---|---:|---|\n{body}"


def shown(chunks: Sequence[Chunk]) -> list[str]:
    return [rendered(chunk.content, chunk.locator) for chunk in chunks]


def marks(text: str) -> int:
    return sum(_MARK.match(line) is not None for line in text.split("\n"))


@pytest.mark.parametrize("uri", ["a.md", "a.txt"])
@pytest.mark.parametrize("block", [fence(16), table(12)], ids=["fence", "table"])
@pytest.mark.parametrize("before", range(0, 12, 2))
def test_a_block_that_fits_is_never_cut(uri: str, block: str, before: int) -> None:
    """A block is whole after any text, also if blank lines in it look like better places."""
    block = block.replace("value_9", "\nvalue_9")
    assert 150 < counter()([block])[0] < LIMIT_TOKENS - 10
    chunks = cut(uri, f"# Title\n\n{SENTENCE * before}\n\n{block}\n\n{SENTENCE * 9}\n")
    assert any(block in chunk.content for chunk in chunks)


def test_parts_of_a_fence_can_be_read() -> None:
    """Each part is shown as a fence of its language, and its header has the language."""
    chunks = cut("a.md", f"# Title\n\nSee this.\n\n{fence(60)}\n\nEnd.\n")
    parts = [chunk for chunk in chunks if "value_" in chunk.content]
    assert len(parts) > 2
    for text in shown(parts):
        assert text.count("```python\n") == 1
        assert marks(text) == 2
    assert {chunk.header for chunk in parts[1:]} == {"a.md > Title > python"}
    assert "\n".join(chunk.content for chunk in parts).count("```") == 2


def test_parts_of_a_table_have_its_head() -> None:
    """Each part is shown under the head of the table, and its header has the columns."""
    chunks = cut("a.md", f"# Title\n\n{table(60)}\n")
    assert len(chunks) > 2
    for chunk, text in zip(chunks, shown(chunks), strict=True):
        assert "| Name | Price | Remark |\n|---|---:|---|\n| item" in text
        assert chunk.header in {"a.md", "a.md > Title > Name | Price | Remark"}
    rows = Counter(row for chunk in chunks for row in chunk.content.split("\n") if "item" in row)
    assert len(rows) == 60
    assert set(rows.values()) == {1}


@pytest.mark.parametrize(
    "opening", ["~~~", "````md", "  ```", "      ```js", "``` {.py}"], ids=repr
)
def test_each_form_of_a_fence_is_completed(opening: str) -> None:
    """The end has the mark and the indent of the beginning."""
    mark = re.sub(r"[^`~ ]", "", opening).rstrip()
    chunks = cut("a.md", f"- Item\n\n{opening}\n{code(60)}\n{mark}\n")
    for text in shown(chunks):
        lines = [line for line in text.split("\n") if line.lstrip().startswith(mark.strip())]
        assert lines == [opening, mark]


def test_a_fence_without_an_end_is_closed() -> None:
    """A fence goes to the end of Markdown; in plain text, a single mark begins none."""
    text = f"# Title\n\n```sh\n{code(40)}\n"
    assert {marks(part) for part in shown(cut("a.md", text))} == {2}
    assert all(chunk.locator is None for chunk in cut("a.txt", text))


def test_a_pipe_makes_no_table() -> None:
    """Commands with pipes are cut as paragraphs."""
    lines = "\n".join(f"cat file_{n} | sort | uniq --count" for n in range(60))
    chunks = cut("a.md", lines)
    assert len(chunks) > 1
    assert all(chunk.locator is None for chunk in chunks)


def test_a_row_over_the_limit_is_cut_at_words() -> None:
    """A row that fits into no chunk is the only one in several."""
    long_row = f"| long | {SENTENCE * 40}| x |"
    chunks = cut("a.md", f"{table(20)}\n{long_row}\n{table(20).split(chr(10), 2)[2]}")
    parts = [chunk for chunk in chunks if chunk.start_line == chunk.end_line == 23]
    assert len(parts) > 1
    assert "".join(chunk.content for chunk in parts).split() == long_row.split()


PARTS = st.one_of(
    st.integers(1, 60).map(lambda n: SENTENCE * n),
    st.integers(1, 60).map(fence),
    st.integers(1, 40).map(lambda n: f"   ```\n{code(n)}\n\n{code(n, n)}\n   ```"),
    st.integers(1, 60).map(table),
    st.integers(1, 3).map(lambda n: f"{'#' * n} Heading {n}"),
)


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(PARTS, min_size=1, max_size=12),
    separator=st.sampled_from(["\n", "\n\n"]),
    uri=st.sampled_from(["a.md", "a.txt"]),
    limit_tokens=st.integers(60, 300),
)
def test_no_part_has_half_a_fence_or_row(
    parts: list[str], separator: str, uri: str, limit_tokens: int
) -> None:
    """Whatever surrounds them, fences are shown complete, and rows of tables are whole."""
    text = separator.join(parts)
    chunks = cut(uri, text, limit_tokens)
    lines = set(text.split("\n"))
    for chunk, readable in zip(chunks, shown(chunks), strict=True):
        assert marks(readable) % 2 == 0
        rows = [line for line in chunk.content.split("\n") if line.startswith("|")]
        assert set(rows) <= lines


@pytest.mark.parametrize("uri", ["a.md", "a.txt"])
@pytest.mark.parametrize(
    "content",
    [
        "```a\n" * 60_000,
        "     ~~~\n```x\n" * 30_000,
        f"|{' ' * 100_000}x\n" * 3,
        "|-" * 100_000 + "\n|x",
        "." * 200_000 + " A",
        ". " * 100_000,
        "`" * 100_000 + "\ntext\n" * 300,
    ],
    ids=["openings", "both", "blanks", "dashes", "points", "spaced points", "one mark"],
)
def test_work_grows_with_the_text_only(uri: str, content: str) -> None:
    """Texts that look like many blocks are cut; with quadratic work, the test would not end."""
    assert cut(uri, content)


def test_tildes_under_titles_are_no_fence() -> None:
    """In plain text, a line of tildes underlines a title."""
    text = "\n\n".join(f"Title {n}\n~~~~~~~\n\n{SENTENCE * 12}" for n in range(6))
    assert all(chunk.locator is None for chunk in cut("a.txt", text))


def test_a_block_that_fits_is_whole_beside_one_that_does_not() -> None:
    """The longer header of the parts of a table takes no room from another block."""
    columns = " | ".join(f"The column with the number {n}" for n in range(8))
    rows = "\n".join(f"| {n} {'| x ' * 7}|" for n in range(60))
    block = fence(19)
    assert 225 < counter()([block])[0] < LIMIT_TOKENS - 4
    text = f"{block}\n\n| {columns} |\n{'|---' * 8}|\n{rows}\n"
    assert any(block in chunk.content for chunk in cut("a.md", text))


def test_a_mark_in_indented_code_opens_no_fence_that_ends_at_the_margin() -> None:
    """The headings below it remain headings."""
    text = "# A\n\n    ```\n\n# Install\n\nRun it.\n\n```python\nx = 1\n```\n"
    source = Source("a.md", text, "markdown")
    [chunk] = chunking.cut(source, LIMIT_TOKENS, counter()).chunks
    assert rendered(chunk.content, chunk.locator) == text.rstrip("\n")
    long = text.replace("Run it.", SENTENCE * 60)
    paths = {chunk.heading_path for chunk in cut("a.md", long)}
    assert ("Install",) in paths


def test_a_part_before_the_end_of_a_fence_is_closed() -> None:
    """The last line of code is longer than a chunk, and the mark below is a part of its own."""
    items = " + ".join(f"item_{n}" for n in range(300))
    text = f"# A\n\n```py\nx = 1\nvalue = {items}\n```\n"
    for chunk in cut("a.md", text):
        assert marks(rendered(chunk.content, chunk.locator)) % 2 == 0


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("a.rst", ".. code::" + " " * 60_000 + "!"),
        ("a.md", "```{" + "a" * 60_000 + "\ncode\nmore\nlines\n```\n"),
        ("a.m", "ABCD" + " " * 20_000 + "x\n"),
        ("a.py", "def f():\n    pass\n" + " " * 20_000 + "\n"),
        ("a.py", "def f():\n    pass\n" + (" " * 40 + "\n") * 700),
        ("a.go", "package a\n\nfunc () F() {}\n"),
    ],
)
def test_unusual_blanks_are_cut(uri: str, text: str) -> None:
    """None of them takes a time that grows with the square of the length, or fails."""
    assert cut(uri, text)
