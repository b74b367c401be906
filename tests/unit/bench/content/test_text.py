"""Figures of the cutting of text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.content.text import figures, fragments, odd_fences, recalls, split_rows
from processors.chunking import Chunk


def chunk(content: str, line: int = 1, tokens: int = 100, **lines: str) -> Chunk:
    end = line + content.count("\n")
    return Chunk(line, end, content, "", tokens, locator=lines or None)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Corpus of one text with one question, and a page with a long fence and a long table."""
    (tmp_path / "text").mkdir()
    sentences = [f"The number {n} has the name of the bird {n * 7}. " for n in range(200)]
    text = "".join(sentences)
    (tmp_path / "text/birds.md").write_text(text)
    start = text.index(sentences[50])
    parts = [{"content": sentences[50], "start_index": start, "end_index": start + 30}]
    question = "Which bird has the number 50?"
    quoted = json.dumps(parts).replace('"', '""')
    (tmp_path / "text/questions.csv").write_text(
        f'question,references,corpus_id\n{question},"{quoted}",birds\n'
    )
    code = "\n".join(f"value_{n} = compute({n})" for n in range(100))
    rows = "\n".join(f"| item {n} | {n} |" for n in range(100))
    page = f"# Page\n\n```py\n{code}\n```\n\n| Name | Price |\n|---|---|\n{rows}\n"
    (tmp_path / "page.md").write_text(page)
    return tmp_path


def test_figures_of_a_corpus(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are searched, fences and tables counted; nothing is torn."""
    monkeypatch.setattr("bench.content.text._PYTHON_FILES", 20)
    result = figures(corpus)
    assert result["questions"] == 1
    assert 0 <= float(result["recall_400"]) <= float(result["recall_800"]) <= 1
    assert int(result["chunks"]) > 15
    assert result["odd_fences"] == result["split_rows"] == 0
    assert int(result["code_chunks"]) > 100
    assert int(result["code_fragments"]) < 10


def test_what_is_torn_is_counted() -> None:
    """Half a fence, half a row and a rest of a function count, whole ones do not."""
    half = chunk("```py\na = 1")
    assert odd_fences([half, chunk("b = 2"), chunk("```\nc\n```")]) == 1
    assert odd_fences([chunk("```py\na = 1", closing="```")]) == 0
    assert split_rows([chunk("| a | b", 3), chunk("c |", 3), chunk("text", 4), chunk("d", 4)]) == 1
    module = "def one():\n    return 1\n\n\ndef two():\n    a = 1\n    b = 2\n    return a\n"
    first = chunk("def one():\n    return 1", 1)
    assert (
        fragments(module, [first, chunk("def two():\n    a = 1", 5), chunk("    b = 2\n", 7)]) == 1
    )
    assert fragments(module, [chunk(module)]) == 0


def test_recall_counts_what_fits() -> None:
    """The best chunks that fit a budget count, and one that does not fit is left out."""
    text = "aaaaabbbbbccccc"
    chunks = [chunk("aaaaa", tokens=300), chunk("bbbbb", tokens=200), chunk("ccccc", tokens=100)]
    ranked = [chunks[0], chunks[1], chunks[2]]
    assert recalls(text, chunks, ranked, [(0, 10)]) == {400: 0.5, 800: 1.0}
    assert recalls(text, chunks, ranked, [(8, 12)]) == {400: 0.5, 800: 1.0}
    assert recalls(text, chunks, [chunks[2]], [(0, 10)]) == {400: 0.0, 800: 0.0}
