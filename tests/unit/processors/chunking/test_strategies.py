"""Strategies of chunking: coverage, limits, and the places of cuts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors import chunking
from processors.chunking import Boundaries, Chunk, Source
from processors.chunking.chunkers.prose import Ranks
from processors.chunking.packing import passages
from processors.chunking.packing.outline import SIZES
from processors.chunking.strategies import STRATEGIES, Strategy
from runtime.errors import UsageError
from store.documents.text import TextPart, joined_lines
from tests.support.chunking import LIMIT_TOKENS, counter
from tests.unit.processors.chunking.test_invariants import CONTENT

NAMES = ["auto", "structure", "sentence", "semantic", "whole", "fixed:40", "fixed:60:20"]
KINDS = ["code", "conversation", "markdown", "rst", "text"]
SUBJECTS = ["The harbour", "A committee", "The old bridge", "Every pupil", "Her aunt"]


def sentence(number: int) -> str:
    subject = SUBJECTS[number % len(SUBJECTS)]
    return f"{subject} measured lantern number {number} with some care."


PARAGRAPH = " ".join(map(sentence, range(40)))


def cut(
    content: str,
    strategy: str,
    kind: str = "text",
    limit_tokens: int = LIMIT_TOKENS,
    distances: Sequence[int] | None = None,
    title: str | None = None,
) -> list[Chunk]:
    """Chunks; the distances of each run of sentences are the first ones of ``distances``."""
    source = Source("a", content, kind, title=title, strategy=strategy)
    first = chunking.cut(source, limit_tokens, counter())
    if not first.asked:
        return [*first.chunks]
    values = distances or random.Random(1).choices(range(20_000), k=10_000)
    boundaries = Boundaries([values[: len(run)] for run in first.asked])
    result = chunking.cut(replace(source, boundaries=boundaries), limit_tokens, counter())
    assert not result.asked
    return [*result.chunks]


def joined(chunks: Sequence[Chunk]) -> str:
    parts = [TextPart(chunk.start_line, chunk.end_line, chunk.content) for chunk in chunks]
    return "\n".join(joined_lines(parts, 1))


@settings(max_examples=150, deadline=None)
@given(
    content=CONTENT,
    strategy=st.sampled_from(NAMES),
    kind=st.sampled_from(KINDS),
    limit_tokens=st.integers(min_value=24, max_value=300),
)
def test_chunks_contain_the_text_once_within_the_limit(
    content: str, strategy: str, kind: str, limit_tokens: int
) -> None:
    """Whatever the strategy, chunks have each character but blanks, in order, exactly once."""
    text = content.encode("utf-8", "ignore").decode()
    chunks = cut(text, strategy, kind, limit_tokens, title="A title of some words")
    assert "".join(chunk.content for chunk in chunks).split() == text.split() or (
        "".join("".join(chunk.content for chunk in chunks).split()) == "".join(text.split())
    )
    lines = text.replace("\r\n", "\n").split("\n")
    for chunk in chunks:
        assert chunk.tokens <= limit_tokens
        assert counter()([f"{chunk.header}\n{chunk.content}"])[0] <= limit_tokens
        assert chunk.end_line - chunk.start_line == chunk.content.count("\n")
        assert chunk.end_line <= len(lines)


@pytest.mark.parametrize("strategy", NAMES)
@pytest.mark.parametrize("limit_tokens", [40, LIMIT_TOKENS])
def test_a_text_is_joined_exactly_from_its_chunks(strategy: str, limit_tokens: int) -> None:
    """Chunks that begin within a line continue it."""
    text = f"# Title\n\n{PARAGRAPH}\n{PARAGRAPH}\n\n- item\n\n\n{PARAGRAPH}\nend"
    assert joined(cut(text, strategy, "markdown", limit_tokens)) == text


def test_ranks_are_those_of_the_chunkers() -> None:
    """The packer of passages and the chunkers of prose mean the same ranks."""
    ranks = (passages.NEVER, passages.SENTENCE, passages.PARAGRAPH)
    assert ranks == (Ranks.NEVER, Ranks.SENTENCE, Ranks.INDENTED)
    assert Ranks.LINE < Ranks.SENTENCE < Ranks.INDENTED < Ranks.ITEM < Ranks.PARAGRAPH


@pytest.mark.parametrize("strategy", ["sentence", "semantic"])
def test_sentences_are_never_cut(strategy: str) -> None:
    """Chunks of about the merge size end with a sentence."""
    chunks = cut(PARAGRAPH, strategy)
    assert len(chunks) > 3
    assert all(chunk.content.rstrip().endswith("care.") for chunk in chunks)
    assert all(SIZES.minimum_tokens <= chunk.tokens <= SIZES.merge_tokens for chunk in chunks)


def test_a_paragraph_is_cut_where_the_topic_changes() -> None:
    """The largest distance within a paragraph is a cut."""
    for place in (11, 20, 29):
        distances = [100] * 40
        distances[place] = 9_000
        chunks = cut(PARAGRAPH, "semantic", distances=distances)
        assert sentence(place) in {chunk.content[: len(sentence(place))] for chunk in chunks}


def test_paragraphs_come_before_topics() -> None:
    """A document whose paragraphs are small is cut between these, and asks for no distance."""
    paragraphs = [" ".join(map(sentence, range(n, n + 6))) for n in range(0, 60, 6)]
    source = Source("a", "\n\n".join(paragraphs), "text", strategy="semantic")
    result = chunking.cut(source, LIMIT_TOKENS, counter())
    assert not result.asked
    assert (
        result.chunks == chunking.cut(replace(source, strategy="sentence"), 254, counter()).chunks
    )
    large = replace(source, content=f"{source.text}\n\n{PARAGRAPH}")
    [run] = chunking.cut(large, LIMIT_TOKENS, counter()).asked
    assert set(run) <= {sentence(number) for number in range(40)}


def test_tables_and_code_ask_for_no_distance() -> None:
    """Rows of tables, and lines of code in a fence, are no sentences."""
    table = "\n".join(["| a | b |", "|---|---|", *(f"| x{n} | word. Word |" for n in range(90))])
    fence = "\n".join(["```", *(f"call(first. Second, {n})" for n in range(90)), "```"])
    for block in (table, fence):
        source = Source("a.md", f"# One\n\n{block}\n", "markdown", strategy="semantic")
        assert not chunking.cut(source, LIMIT_TOKENS, counter()).asked
        assert all("\n" in chunk.content for chunk in cut(source.text, "semantic", "markdown"))


@pytest.mark.parametrize("strategy", ["sentence", "semantic"])
def test_a_fence_that_fits_is_never_cut(strategy: str) -> None:
    """A fence between paragraphs stays whole, also at its blank lines."""
    fence = "\n\n".join(["```py", *(f"call(first, {n})" for n in range(18)), "```"])
    text = f"{PARAGRAPH}\n\n{fence}\n\n{PARAGRAPH}\n"
    for kind in ("text", "markdown"):
        chunks = cut(text, strategy, kind)
        assert sum("```" in chunk.content for chunk in chunks) == 1
        assert joined(chunks) == text.rstrip("\n")


def test_the_parts_of_a_large_fence_are_continued() -> None:
    """A part of a fence has its language as header, and its marks as places to show it with."""
    fence = "\n".join(["```py", *(f"call(first, second, {n})" for n in range(90)), "```"])
    chunks = cut(f"# One\n\n{fence}\n", "sentence", "markdown")
    assert len(chunks) > 2
    assert {chunk.header for chunk in chunks[1:]} == {"One > py"}
    assert [(chunk.locator or {}).get("opening") for chunk in chunks[1:]] == (
        ["```py"] * (len(chunks) - 1)
    )


def test_structure_keeps_paragraphs_that_fit() -> None:
    """The strategy auto aims at smaller chunks of prose than structure."""
    text = " ".join(map(sentence, range(20)))
    assert len(cut(text, "structure")) == 1
    assert len(cut(text, "auto")) > 1


@pytest.mark.parametrize("strategy", ["sentence", "semantic"])
def test_code_is_cut_by_its_structure(strategy: str) -> None:
    """Strategies of prose do not concern code."""
    code = "\n".join(f"def f{n}():\n    return '{sentence(n)} Next.'\n" for n in range(40))
    assert cut(code, strategy, "code") == cut(code, "auto", "code")


def test_headings_stay_with_their_text() -> None:
    """Chunks of passages know their headings, and continuations have them as header."""
    chunks = cut(f"# Weir\n\n## Gates\n\n{PARAGRAPH}\n", "semantic", "markdown", title="Doc")
    assert [chunk.heading_path for chunk in chunks[:2]] == [("Weir",), ("Weir", "Gates")]
    assert [chunk.header for chunk in chunks[:2]] == ["Doc", "Doc > Weir"]
    assert {chunk.heading_path for chunk in chunks[2:]} == {("Weir", "Gates")}
    assert {chunk.header for chunk in chunks[2:]} == {"Doc > Weir > Gates"}


def test_whole_documents_stay_whole_if_they_fit() -> None:
    """A document within the limit is one chunk; a larger one is cut as by auto."""
    text = "\n\n".join(map(sentence, range(20)))
    [chunk] = cut(text, "whole")
    assert (chunk.start_line, chunk.end_line, chunk.content) == (1, 39, text)
    assert len(cut(text, "auto")) > 1
    assert cut(PARAGRAPH, "whole") == cut(PARAGRAPH, "auto")
    assert len(cut(PARAGRAPH, "whole", limit_tokens=4_000)) == 1


def test_windows_have_their_size() -> None:
    """All windows but the last are full, to within a word."""
    chunks = cut(PARAGRAPH, "fixed:50")
    assert all(45 <= chunk.tokens <= 50 for chunk in chunks[:-1])
    assert {chunk.header for chunk in chunks} == {""}


def test_the_overlap_of_windows_is_in_their_header() -> None:
    """What windows repeat is embedded, and is neither content nor cited."""
    chunks = cut(PARAGRAPH, "fixed:50:20", title="Doc")
    assert "".join(chunk.content for chunk in chunks) == PARAGRAPH
    assert chunks[0].header == "Doc"
    for former, chunk in pairwise(chunks):
        title, overlap = chunk.header.split("\n")
        assert (title, former.content.rstrip().endswith(overlap)) == ("Doc", True)
        assert 12 <= counter()([overlap])[0] <= 20


@pytest.mark.parametrize("text", ["auto", "whole", "semantic", "fixed:24", "fixed:200:50"])
def test_a_strategy_is_read_as_it_is_written(text: str) -> None:
    """Formatting inverts parsing."""
    assert str(Strategy.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topic", "name one of auto, "),
        ("fixed", "fixed:TOKENS"),
        ("fixed:TOKENS[:OVERLAP]", "no chunking"),
        ("fixed:23", "24 to 8,192"),
        ("fixed:9000", "24 to 8,192"),
        ("fixed:100:51", "half of the size"),
        ("Semantic", "no chunking"),
    ],
)
def test_other_strategies_are_refused(text: str, message: str) -> None:
    """The error lists the strategies, or the sizes that are allowed."""
    with pytest.raises(UsageError, match=message) as refused:
        Strategy.parse(text)
    assert str(refused.value)
    assert STRATEGIES
