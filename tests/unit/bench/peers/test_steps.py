"""Steps of a comparison, by peers of this test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from bench.evaluation import EvaluationSet
from bench.peers import steps
from bench.peers.instance import Instance
from bench.peers.protocol import HASH, OTHER_HASH
from bench.peers.steps import with_one_line_more


class Remodelled:
    """Peer whose vectors change in place: at each moment a part of the answers is right."""

    environment, home, postgres = None, Path(), None

    def __init__(self, *_: Any, **__: Any) -> None:
        self.changed = asyncio.Event()
        self.hits: Mapping[str, Iterator[int]] = {
            HASH: iter([4, 4, 2, 0]),
            OTHER_HASH: iter([0, 1, 4, 4]),
        }

    async def start(self, *_: Any) -> None:
        """Start nothing."""

    async def close(self) -> None:
        """Release nothing."""

    async def call(self, do: str, **arguments: Any) -> dict[str, int]:
        """Answer a probe; the change of the model ends with the last probe of the old one."""
        if do == "remodel":
            await self.changed.wait()
            return {}
        hits = next(self.hits[arguments["model"]])
        if hits == 0 and arguments["model"] == HASH:
            self.changed.set()
        await asyncio.sleep(0)
        return {"hits": hits, "failures": int(hits == 2)}


async def test_the_worst_answers_while_the_model_changes_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The better of both models counts, and at worst 2 of 4 answers were right by it."""
    peer = Remodelled()
    monkeypatch.setattr(steps, "Instance", lambda *_, **__: peer)
    chunks = [("a.py", str(number)) for number in range(4)]
    figures = await steps._remodelled(cast("Instance", peer), chunks, Path())
    assert (figures["model_before"], figures["model_worst"], figures["model_after"]) == (1, 0.5, 1)
    assert (figures["model_failures"], figures["model_asked"]) == (1, 12)


def test_an_edit_is_one_line_in_a_function() -> None:
    text = "def a():\n    pass\n\nclass B:\n    def b(self):\n        pass\n"
    edited = with_one_line_more(text, 7).split("\n")
    assert edited.pop(5) == "        quagga_7 = 7"
    assert "\n".join(edited) == text
    assert with_one_line_more("x = 1\n", 7) == "x = 1\n\nquagga_7 = 7"


def test_documents_of_a_set_become_files_of_their_kind(tmp_path: Path) -> None:
    documents = [("guide/a", "A title", "Text."), ("pkg/b.py", "pkg/b.py", "x = 1")]
    ids = steps._written_set(tmp_path, EvaluationSet("set", documents, {}, {}))
    assert ids == {"0.md": "guide/a", "1-b.py": "pkg/b.py"}
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert texts == {"0.md": "# A title\n\nText.", "1-b.py": "x = 1"}
