"""Figures of the strategies of chunking."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from bench.content import semantic
from bench.content.semantic import figures
from processors.embedders.hash_embedder import HashingEmbedder

SENTENCES = [
    f"Gauge {n} of the river stood at {n} metres when the gate was opened." for n in range(80)
]
TEXT = " ".join(SENTENCES)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Corpus with one text of one paragraph, and a question about each of its sentences."""
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "gauges.md").write_text(TEXT)
    with (folder / "questions.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, ("question", "references", "corpus_id"))
        rows.writeheader()
        for sentence in SENTENCES:
            start = TEXT.index(sentence)
            span = {"content": sentence, "start_index": start, "end_index": start + len(sentence)}
            question = {"question": sentence, "references": json.dumps([span])}
            rows.writerow({**question, "corpus_id": "gauges"})
            rows.writerow({**question, "corpus_id": "another text"})
    return tmp_path


def test_strategies_are_compared(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares, costs over those of auto, and the chunks of an edit are reported."""
    monkeypatch.setattr(semantic, "LocalEmbedder", HashingEmbedder)
    result = figures(corpus)
    assert result["questions"] == len(SENTENCES)
    for strategy in ("auto", "sentence", "semantic", "whole", "fixed:200"):
        least, most = (float(result[f"{strategy} R@{budget}"]) for budget in (400, 800))
        assert 0 < least <= most <= 1
    assert 1.5 < float(result["semantic tokens over auto's"]) <= 2.1
    assert float(result["semantic texts over auto's"]) > 2
    assert 1 <= int(result["chunks embedded after an edit"]) <= 4
