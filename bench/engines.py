"""Speed of the local model's engine, compared with the same model in f32."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from time import perf_counter

from processors.embedders.embedder import Urgency
from processors.embedders.local.embedder import LocalEmbedder
from processors.embedders.local.encoder import Precision

__all__ = ["chunks_per_s", "ratio_to_f32"]

_ROUNDS = 5
_TEXTS = 100


async def ratio_to_f32(precision: Precision, texts: Sequence[str]) -> float:
    """Return chunks per second on one thread ÷ those in f32: median of alternating rounds."""
    embedders = [LocalEmbedder(precision=choice) for choice in (precision, Precision.F32)]
    step = max(1, len(texts) // _TEXTS)
    sample = texts[::step][:_TEXTS]
    speeds = [
        [await chunks_per_s(embedder, sample) for embedder in embedders] for _ in range(_ROUNDS + 1)
    ]
    for embedder in embedders:
        await embedder.close()
    # kernels for the lengths of the sample are compiled in the first round
    return statistics.median(speed / exact for speed, exact in speeds[1:])


async def chunks_per_s(embedder: LocalEmbedder, texts: Sequence[str]) -> float:
    """Return the speed of one call for all texts."""
    started = perf_counter()
    await embedder.embed(texts, Urgency.BULK)
    return len(texts) / (perf_counter() - started)
