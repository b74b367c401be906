"""Confidence of answers: questions of each set against its own index, and against the others'.

Prints for each set the area under the curve of the best cosine (own questions against those of
other sets, for which nothing fits), the share of own questions that would be marked weak, and the
share of the others that would. Vectors are computed here, without servers:
``python -m bench.confidence SET SET...``
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.evaluation import EvaluationSet, load
from processors.answering.calibration import WEAK_BELOW, confidence_of, unrelated_of
from processors.answering.unrelated import UNRELATED_QUESTIONS
from processors.chunking import cut
from processors.chunking.types import Source
from processors.embedders.embedder import Urgency
from processors.embedders.local.embedder import LocalEmbedder

__all__ = ["area_under_curve", "measure"]

Array = npt.NDArray[np.float32]

_MODEL = "model"
_DOCUMENTS = 300
_CHUNKS_PER_DOCUMENT = 2
_QUESTIONS = 80
_LIMIT_TOKENS = 254


def area_under_curve(own: Array, others: Array) -> float:
    """Chance that a value of ``own`` is above one of ``others`` (Hanley and McNeil 1982)."""
    ranks = np.concatenate([own, others]).argsort().argsort() + 1
    least = len(own) * (len(own) + 1) / 2
    return float((ranks[: len(own)].sum() - least) / len(own) / len(others))


async def measure(sets: Sequence[EvaluationSet], embedder: LocalEmbedder) -> list[str]:
    """Return a line for each set. Sets of the same documents must not be compared."""
    unrelated = await _vectors(embedder, UNRELATED_QUESTIONS)
    sampled = [_sample(chosen, embedder) for chosen in sets]
    questions = [await _vectors(embedder, texts) for texts, _ in sampled]
    lines = []
    for index, (_, chunks) in enumerate(sampled):
        vectors = await _vectors(embedder, chunks)
        calibration = {_MODEL: unrelated_of((unrelated @ vectors.T).max(axis=1))}
        texts: tuple[list[str], list[str]] = [], []
        bests: tuple[list[float], list[float]] = [], []
        for asker, (asked, _) in enumerate(sampled):
            cosines = (questions[asker] @ vectors.T).max(axis=1)
            texts[asker != index].extend(asked)
            bests[asker != index].extend(map(float, cosines))
        area = area_under_curve(*(np.array(best, np.float32) for best in bests))
        shares = [_share_of_weak(calibration, *both) for both in zip(texts, bests, strict=True)]
        lines.append(
            f"{sets[index].name:16} {len(chunks):5} chunks  AUC {area:.3f}"
            f"  own marked weak {shares[0]:.1%}  others marked weak {shares[1]:.1%}"
        )
    return lines


def _share_of_weak(
    calibration: Mapping[str, Mapping[str, float]], texts: Sequence[str], bests: Sequence[float]
) -> float:
    confidences = [
        confidence_of(calibration, text, {_MODEL: best})
        for text, best in zip(texts, bests, strict=True)
    ]
    return float(np.mean([value is not None and value < WEAK_BELOW for value in confidences]))


async def _vectors(embedder: LocalEmbedder, texts: Sequence[str]) -> Array:
    return (await embedder.embed(texts, Urgency.BULK)).vectors


def _sample(chosen: EvaluationSet, embedder: LocalEmbedder) -> tuple[list[str], list[str]]:
    """Some questions, and chunks of their documents and of others; the same in every run."""
    shuffle = random.Random(3).shuffle
    keys = sorted(chosen.queries)
    shuffle(keys)
    keys = keys[:_QUESTIONS]
    answers = {uri for key in keys for uri, grade in chosen.grades[key].items() if grade}
    others = [document for document in chosen.documents if document[0] not in answers]
    shuffle(others)
    documents = [document for document in chosen.documents if document[0] in answers]
    documents += others[: max(0, _DOCUMENTS - len(documents))]
    chunks = [
        f"{title}\n{chunk.header}\n{chunk.content}"
        for uri, title, text in documents
        for chunk in islice(
            cut(Source(uri, text, "text"), _LIMIT_TOKENS, embedder.count_tokens).chunks,
            _CHUNKS_PER_DOCUMENT,
        )
    ]
    return [chosen.queries[key] for key in keys], chunks


async def _main(directories: Sequence[str]) -> None:
    embedder = LocalEmbedder()
    try:
        for line in await measure([load(Path(name)) for name in directories], embedder):
            sys.stdout.write(line + "\n")
    finally:
        await embedder.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
