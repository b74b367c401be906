"""Invariants of chunking: chunks cover the document and fit the model."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors import chunking
from processors.chunking import CHUNKERS, CHUNKING_VERSION, Source
from processors.chunking.chunkers.grammars import GRAMMARS
from runtime.errors import UnsupportedContent
from tests.support.chunking import LIMIT_TOKENS, check, counter, cut

STDLIB = Path(sysconfig.get_path("stdlib"))
PIECES = st.sampled_from(
    [
        "def f(x):",
        "class A(B):",
        "    return 1",
        "\t",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\x0c",
        "{",
        "}",
        "(",
        '"""',
        "'",
        "# comment",
        "# Heading",
        "Title\n=====\n",
        "```",
        "| a | b |",
        "- item ",
        "---\n",
        "word " * 30,
        "x" * 400,
        "Ünïcödé 漢字。",
        "\ufeff",
        "Name: says",
        "  @decorator\n",
        "end",
        "```py\n",
    ]
)
CONTENT = st.lists(st.one_of(PIECES, st.text(max_size=20)), max_size=120).map("".join)


@settings(max_examples=150, deadline=None)
@given(
    content=CONTENT,
    kind=st.sampled_from(sorted(CHUNKERS)),
    language=st.sampled_from([None, *sorted(GRAMMARS)]),
    limit_tokens=st.integers(min_value=24, max_value=300),
    version=st.sampled_from([1, CHUNKING_VERSION]),
)
def test_any_text_is_covered_within_the_limit(
    content: str, kind: str, language: str | None, limit_tokens: int, version: int
) -> None:
    """Chunks cover any text of any kind and language within any limit, in every version."""
    text = content.encode("utf-8", "ignore").decode()
    title = "A title of some words"
    source = Source("any", text, kind, language, title, version=version)
    check(text, chunking.cut(source, limit_tokens, counter()).chunks, limit_tokens)


def test_the_standard_library_is_covered() -> None:
    """Chunks of real modules cover every line."""
    paths = sorted(STDLIB.glob("*.py"))[::8]
    assert len(paths) > 15
    for path in paths:
        assert cut(path.name, path.read_bytes().decode("utf-8", "replace"))


@pytest.mark.parametrize("content", ["", "\n", " \t\n\f\n\r\n", "\ufeff"])
def test_nothing_gives_no_chunks(content: str) -> None:
    """Empty and blank documents have no chunks."""
    assert [one for one in cut("a.py", content) if one.content != "\ufeff"] == []


@pytest.mark.parametrize("uri", ["a.py", "a.js", "a.c", "a.json", "a.md", "a.txt"])
@pytest.mark.parametrize(
    "content",
    [
        "(" * 20_000,
        "[\n" * 20_000,
        "x = 1; " * 8_000,
        "a" * 80_000,
        "- " * 20_000,
        "漢字。" * 8_000,
    ],
    ids=["brackets", "bracket lines", "one line", "one word", "dashes", "no spaces"],
)
def test_extreme_documents_are_cut(uri: str, content: str) -> None:
    """Very deep and very long documents are cut without recursion errors."""
    assert len(cut(uri, content)) > 10


def test_lines_end_at_line_feeds_only() -> None:
    """Only line feeds count as line ends, as in git."""
    (one,) = cut("a.txt", "one\r\ntwo\x0cstill two\rand still\r\nthree")
    assert (one.start_line, one.end_line) == (1, 3)
    assert one.content == "one\ntwo\x0cstill two and still\nthree"


@pytest.mark.parametrize("uri", ["a.py", "a.md", "a.rst", "a.txt", "openapi.json"])
def test_line_ends_of_windows_make_no_difference(uri: str) -> None:
    """Windows line ends give the same chunks at the same lines."""
    text = "# One\n\ndef two():\n    return 2\n\nThree\n=====\n\nfour\n"
    assert cut(uri, text.replace("\n", "\r\n")) == cut(uri, text)


def test_a_kind_without_a_chunker_is_refused() -> None:
    """The error for a kind without a chunker lists the kinds that have one."""
    with pytest.raises(UnsupportedContent, match="markdown"):
        chunking.cut(Source("a.film", "…", "film"), LIMIT_TOKENS, counter())


def test_every_chunker_has_its_row() -> None:
    """A module that defines ``chunk_x`` is registered under ``x``."""
    import processors.chunking.chunkers as package

    folder = Path(package.__file__).parent
    named = {
        path.stem for path in folder.glob("*.py") if f"\ndef chunk_{path.stem}(" in path.read_text()
    }
    assert named == set(CHUNKERS)
    assert all(CHUNKERS[name].__module__.endswith(f".{name}") for name in named)


def test_counting_by_words_equals_the_tokenizer() -> None:
    """The fast counter gives the same counts as the tokenizer."""
    from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path

    exact = TokenCounter(tokenizer_path(None))
    texts = (STDLIB / "argparse.py").read_text().split("\n")
    texts += [
        "a\x0bb\x1cc",
        "snake_case Ünï 漢字 x",
        "\x00a\x7fb",
        "x" * 150,
        "don't [CLS] stop",
        "é\u200bb",
    ]
    assert counter()(texts) == exact(texts)
