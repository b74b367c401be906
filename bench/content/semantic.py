"""Figures of the strategies of chunking over texts with questions and answer spans."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from processors.chunking import Boundaries, Chunk, Source, cut
from processors.embedders.embedder import Urgency
from processors.embedders.local.embedder import LocalEmbedder
from processors.indexing.sentence_distances import distances_of

__all__ = ["figures"]

Vectors = npt.NDArray[np.float32]
Span = tuple[int, int]
"""First character of a text, and the one after its last."""

_STRATEGIES = ("auto", "sentence", "semantic", "whole", "fixed:200")
_BUDGETS = (400, 800)
_EDITED_SENTENCES = 1_000
_LEFT_TOKENS = 20
"""A budget with fewer tokens left is used up."""


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Cut and ask the texts in the folder ``text`` of a corpus, with the local model.

    R@n is the share of an answer's characters in the best chunks that fit into n tokens, by vectors
    only; it is absent without ``questions.csv``. ``texts`` and ``tokens`` of the semantic strategy
    are its sentences and chunks together, over those of ``auto``. ``chunks embedded after an edit``
    is the largest number of chunks that were not embedded before, over edits of single sentences of
    a text of 1,000.
    """
    return asyncio.run(_figures(corpus))


async def _figures(corpus: Path) -> dict[str, float | int | str]:
    bench = _Bench()
    await bench.embedder.start()
    try:
        scores: dict[str, list[tuple[float, ...]]] = {name: [] for name in _STRATEGIES}
        for path, questions in _questions(corpus / "text" / "questions.csv").items():
            text = path.read_text("utf-8")
            asked = await bench.embed([row["question"] for row in questions])
            answers = [_spans(row["references"]) for row in questions]
            for name in _STRATEGIES:
                scores[name] += await bench.score(path.name, text, name, asked, answers)
        spent = dict(bench.spent)
        edited = await bench.edited()
    finally:
        await bench.embedder.close()
    result: dict[str, float | int | str] = {"questions": len(scores["auto"])}
    result |= {"chunks embedded after an edit": edited}
    if not scores["auto"]:
        return result
    for name, values in scores.items():
        means = np.mean(values, axis=0)
        for budget, mean in zip(_BUDGETS, means, strict=True):
            result[f"{name} R@{budget}"] = round(float(mean), 3)
    for measure in ("texts", "tokens"):
        ratio = spent["semantic", measure] / spent["auto", measure]
        result[f"semantic {measure} over auto's"] = round(ratio, 2)
    return result


def _questions(path: Path) -> dict[Path, list[dict[str, str]]]:
    """Rows of a table of questions, by the file of the text that they ask. No table has no rows."""
    rows = csv.DictReader(path.read_text("utf-8").splitlines()) if path.is_file() else []
    by_text: dict[Path, list[dict[str, str]]] = {}
    for row in rows:
        text = path.parent / f"{row['corpus_id']}.md"
        if text.is_file():
            by_text.setdefault(text, []).append(row)
    return by_text


class _Bench:
    """The local model, with the texts and tokens that each strategy has embedded."""

    def __init__(self) -> None:
        self.embedder = LocalEmbedder()
        self.spent: dict[tuple[str, str], int] = {}
        self._vectors: dict[str, Vectors] = {}

    async def embed(self, texts: Sequence[str], strategy: str = "") -> Vectors:
        """Return vectors of texts, which are embedded once, and count them for a strategy."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if missing:
            embedded = await self.embedder.embed(missing, Urgency.BULK)
            self._vectors |= zip(missing, embedded.vectors, strict=True)
        tokens = sum(self.embedder.count_tokens(texts))
        for measure, amount in (("texts", len(texts)), ("tokens", tokens)):
            key = strategy, measure
            self.spent[key] = self.spent.get(key, 0) + amount
        return np.array([self._vectors[text] for text in texts])

    async def cut(self, uri: str, text: str, strategy: str) -> Sequence[Chunk]:
        """Cut a text as workers do."""
        source = Source(uri, text, "text", strategy=strategy)
        limit, count = self.embedder.limit_tokens, self.embedder.count_tokens
        first = cut(source, limit, count)
        if not first.asked:
            return first.chunks
        vectors = await self.embed([s for run in first.asked for s in run], strategy)
        distances, start = [], 0
        for run in first.asked:
            distances.append(distances_of(list(vectors[start : start + len(run)])))
            start += len(run)
        return cut(replace(source, boundaries=Boundaries(distances)), limit, count).chunks

    async def score(
        self,
        uri: str,
        text: str,
        strategy: str,
        questions: Vectors,
        answers: Sequence[Sequence[Span]],
    ) -> list[tuple[float, ...]]:
        """Share of each answer in the best chunks, for each budget."""
        chunks = await self.cut(uri, text, strategy)
        spans = _located(text, chunks)
        vectors = await self.embed([_embedded(chunk) for chunk in chunks], strategy)
        order = np.argsort(-(questions @ vectors.T), axis=1)
        tokens = [chunk.tokens for chunk in chunks]
        return [
            tuple(
                _share([spans[i] for i in _fitting(ranked, tokens, budget)], answer)
                for budget in _BUDGETS
            )
            for ranked, answer in zip(order, answers, strict=True)
        ]

    async def edited(self) -> int:
        """Most chunks of the semantic strategy that an edit of one sentence makes new."""
        sentences = [_sentence(number) for number in range(_EDITED_SENTENCES)]
        before = {_embedded(chunk) for chunk in await self._paragraph(sentences)}
        most = 0
        for position in range(50, _EDITED_SENTENCES, 100):
            changed = list(sentences)
            changed[position] = f"Edit {position} is about a lighthouse that was painted last year."
            after = [_embedded(chunk) for chunk in await self._paragraph(changed)]
            most = max(most, sum(text not in before for text in after))
        return most

    async def _paragraph(self, sentences: Sequence[str]) -> Sequence[Chunk]:
        return await self.cut("edited.txt", " ".join(sentences), "semantic")


def _embedded(chunk: Chunk) -> str:
    return f"{chunk.header}\n{chunk.content}" if chunk.header else chunk.content


_SUBJECTS = ("The harbour", "A committee", "The old bridge", "Every pupil", "The river", "Her aunt")
_VERBS = ("measured", "forgot", "repaired", "described", "sold", "painted", "followed")
_OBJECTS = ("the ledger", "a blue door", "nine lanterns", "the timetable", "some maps")


def _sentence(number: int) -> str:
    """Sentence of a text without paragraphs; the topic changes now and then."""
    topic = number // 7
    subject = _SUBJECTS[topic % len(_SUBJECTS)]
    verb, thing = _VERBS[number % len(_VERBS)], _OBJECTS[(topic + number) % len(_OBJECTS)]
    return f"{subject} {verb} {thing} in the year {1000 + number}."


def _spans(references: str) -> list[Span]:
    return [(span["start_index"], span["end_index"]) for span in json.loads(references)]


def _located(text: str, chunks: Sequence[Chunk]) -> list[Span]:
    """Place of each chunk in its text."""
    spans: list[Span] = []
    position = 0
    for chunk in chunks:
        start = text.index(chunk.content, position)
        position = start + len(chunk.content)
        spans.append((start, position))
    return spans


def _fitting(ranked: Sequence[int], tokens: Sequence[int], budget: int) -> list[int]:
    """Return the best chunks that fit into a budget of tokens; the best one always does."""
    chosen: list[int] = []
    left = budget
    for index in ranked:
        if tokens[index] <= left or not chosen:
            chosen.append(index)
            left -= tokens[index]
        if left < _LEFT_TOKENS:
            break
    return chosen


def _share(chosen: Sequence[Span], answer: Sequence[Span]) -> float:
    """Share of an answer's characters that the chosen chunks, which do not overlap, contain."""
    shown = sum(
        max(0, min(end, right) - max(start, left))
        for start, end in chosen
        for left, right in answer
    )
    return shown / sum(right - left for left, right in answer)
