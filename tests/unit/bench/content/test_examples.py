"""Figures of code examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.content import examples

PAGE = """<html><body><main><h1>Mills</h1>
<p>Open the sluice before the wheel turns:</p><pre>sluice.open()
water.wait()
wheel.turn()</pre>
<p>Weigh every sack of flour:</p><pre>for sack in sacks:
    scale.weigh(sack)
    book.enter(sack)</pre>
<p>Short:</p><pre>a = 1
b = 2
c = 3</pre></main></body></html>"""


def test_examples_are_found_by_masked_paragraphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each paragraph of three words before an example is a question, and is not indexed."""
    monkeypatch.setattr(examples, "_DOCS", tmp_path / "docs")
    (tmp_path / "html").mkdir()
    (tmp_path / "html" / "mills.html").write_text(PAGE)
    result = examples.figures(tmp_path)
    assert (result["documents"], result["examples"], result["questions"]) == (1, 3, 2)
    for way in ("examples", "text"):
        for mode in ("vector", "keyword", "hybrid"):
            assert 0.5 <= float(result[f"{way} nDCG@10 {mode}"]) <= 1.0
    assert result["examples nDCG@10 hybrid"] == 1.0


def test_a_corpus_without_code_has_no_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without questions there are only counts."""
    monkeypatch.setattr(examples, "_DOCS", tmp_path / "docs")
    (tmp_path / "a.md").write_text("# Mills\n\nProse alone.\n")
    result = examples.figures(tmp_path)
    assert (result["documents"], result["questions"]) == (1, 0)
    assert not any("nDCG" in name for name in result)
