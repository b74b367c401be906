"""Figures of pages, against truths beside them."""

from __future__ import annotations

from pathlib import Path

from bench.content.html import figures

PAGE = """<html><head><title>Weirs</title>{head}</head><body><article><h1>Weirs</h1>
<p>They slow the water of a river.</p><pre>open(gate)</pre></article>{foot}</body></html>"""


def test_pages_are_grouped_by_their_generator(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(PAGE.format(head="", foot=""))
    generator = '<meta name="generator" content="AsciiDoc 8.6.10">'
    (tmp_path / "b.html").write_text(PAGE.format(head=generator, foot=""))
    result = figures(tmp_path)
    for name in ("other", "git"):
        assert (result[f"{name} pages"], result[f"{name} headings"]) == (1, 1)
        assert result[f"{name} code lines"] == 1
    assert not {"python pages", "article word F1", "source words kept"} & result.keys()


def test_an_article_is_compared_with_its_text(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(PAGE.format(head="", foot=""))
    (tmp_path / "a.txt").write_text("Weirs They slow the water of a river open gate")
    assert figures(tmp_path)["article word F1"] == 1
    (tmp_path / "a.txt").write_text("Weirs They slow the water")
    assert 0.5 < float(figures(tmp_path)["article word F1"]) < 0.8


def test_a_corpus_without_pages_has_no_figures(tmp_path: Path) -> None:
    assert figures(tmp_path) == {}
