"""Figures of conversations."""

from __future__ import annotations

from pathlib import Path

from bench.content.conversation import figures
from tests.support.forking import ROOT


def test_figures_of_a_real_export() -> None:
    """No chunk of a real export spans two threads, and each names speakers and times."""
    result = figures(ROOT / "tests/data/content")
    assert result["refused"] == 0
    assert (result["turns"], result["threads"]) == (147, 18)
    assert int(result["chunks"]) > 18
    assert result["chunks_over_threads"] == 0
    assert result["chunks_without_speaker"] == 0
    assert result["chunks_without_time"] == 0


def test_a_refused_file_is_counted(tmp_path: Path) -> None:
    """A file that is no conversation is counted and left out; a chat without times has none."""
    (tmp_path / "conversation").mkdir()
    (tmp_path / "conversation/a.txt").write_text("no turns")
    (tmp_path / "conversation/b.json").write_text('[{"role": "user", "content": "hello"}]')
    result = figures(tmp_path)
    assert (result["files"], result["refused"], result["turns"]) == (2, 1, 1)
    assert (result["chunks"], result["chunks_without_time"]) == (1, 1)
