"""Dry run: estimate what a replay would embed, without writing anything.

Every document is cut as in the replay, so that the counts are exact. Local models embed a sample
of the texts to measure their speed; remote models do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from processors.content import Contents
from processors.embedders.embedder import Urgency
from processors.embedders.registry import Embedders
from processors.indexing.preparation import CutDocument
from processors.replay.builder import Progress
from processors.replay.fold import LastChange
from processors.wiring.operator_tools import OperatorTools
from store.generations.catalog import Recipe
from store.store import Store

__all__ = ["Estimate", "estimate", "prices_of"]

_SAMPLE_TEXTS = 64
_REMOTE_TEXTS_PER_SECOND = 384.0
"""Guess: four concurrent requests of 96 texts per second, which most providers can serve."""

_WRITTEN_PER_SECOND = 8_000.0
"""Chunks that are stored per second."""

_LOCAL_PREFIX = "local/"


@dataclass
class Estimate:
    """Estimated work of a replay. ``cost_usd`` is None if the price of a model is unknown.

    ``tokens`` are counted with each model's own tokenizer, if it is available. ``sentences`` would
    be embedded besides the chunks, to cut documents by topic; the number of chunks is then about
    right.
    """

    project: str
    documents: int = 0
    chunks: int = 0
    reused: int = 0
    embedded: int = 0
    tokens: int = 0
    cost_usd: float | None = 0.0
    seconds: float = 0.0
    refused: int = 0
    sentences: int = 0

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        rounded = {"seconds": round(self.seconds, 1)}
        if self.cost_usd is not None:
            rounded["cost_usd"] = round(self.cost_usd, 6)
        return {"dry_run": True} | asdict(self) | rounded


async def prices_of(embedders: Embedders, recipe: Recipe) -> dict[str, float | None]:
    """Read the price of each model in US dollars per token, or None if it is unknown."""
    return {model: await embedders.usd_per_token(model) for model in recipe.model_names}


async def estimate(
    batches: AsyncIterator[Sequence[LastChange]],
    documents: int,
    project: str,
    recipe: Recipe,
    tools: OperatorTools,
    prices: Mapping[str, float | None],
    progress: Progress,
) -> Estimate:
    """Cut every document, and count the texts that have no vector yet. Nothing is written.

    ``batches``: the last changes of all ``documents``.
    ``prices``: US dollars per token by model, or None if the price is unknown.

    Raises:
        Unavailable, OperatorError: for the same reasons as in a replay.
    """
    begin = perf_counter()
    plan = Estimate(project, documents=documents)
    missing: dict[str, dict[bytes, str]] = {name: {} for name in recipe.model_names}
    sentences: dict[str, dict[bytes, str]] = {name: {} for name in recipe.model_names}
    done = 0
    async for batch in batches:
        cut = await _cut(batch, project, recipe, tools)
        plan.refused += len(batch) - len(cut)
        plan.chunks += sum(len(document.chunks) for document in cut)
        chunk_texts = [(each.model, zip(each.hashes, each.texts, strict=True)) for each in cut]
        await _collect(project, chunk_texts, missing, tools.store)
        asked = [(each.model, each.asked.items()) for each in cut if each.cut.asked]
        await _collect(project, asked, sentences, tools.store)
        done += len(batch)
        progress(done, documents)
    plan.seconds = perf_counter() - begin + plan.chunks / _WRITTEN_PER_SECOND
    for model, texts in missing.items():
        plan.embedded += len(texts)
        plan.sentences += len(sentences[model])
        together = [*texts.values(), *sentences[model].values()]
        await _price(plan, model, together, prices[model], tools.embedders)
    plan.reused = plan.chunks - plan.embedded
    return plan


async def _cut(
    batch: Sequence[LastChange], project: str, recipe: Recipe, tools: OperatorTools
) -> list[CutDocument]:
    changes = [last.alone() for last in batch]
    texts = await Contents(project, tools.archive).of(changes)
    cut, _ = await tools.preparer(texts.fetch).estimate(changes, recipe)
    return cut


async def _collect(
    project: str,
    documents: Iterable[tuple[str, Iterable[tuple[bytes, str]]]],
    missing: Mapping[str, dict[bytes, str]],
    store: Store,
) -> None:
    """Add the texts without a cached vector. ``documents``: model, and texts with their hashes."""
    by_model: dict[str, dict[bytes, str]] = {}
    for model, pairs in documents:
        by_model.setdefault(model, {}).update(pairs)
    for model, texts in by_model.items():
        cached = await store.known_hashes(project, model, list(texts))
        missing[model].update(
            {text_hash: text for text_hash, text in texts.items() if text_hash not in cached}
        )


async def _price(
    plan: Estimate,
    model: str,
    texts: Sequence[str],
    usd_per_token: float | None,
    embedders: Embedders,
) -> None:
    if not texts:
        return
    embedder = await embedders.embedder(model)
    tokens = sum(await asyncio.to_thread(embedder.count_tokens, texts))
    plan.tokens += tokens
    if usd_per_token is None or plan.cost_usd is None:
        plan.cost_usd = None
    else:
        plan.cost_usd += tokens * usd_per_token
    rate = _REMOTE_TEXTS_PER_SECOND
    if model.startswith(_LOCAL_PREFIX):
        sample = texts[:: max(1, len(texts) // _SAMPLE_TEXTS)][:_SAMPLE_TEXTS]
        begin = perf_counter()
        await embedder.embed(sample, Urgency.BULK)
        rate = len(sample) / (perf_counter() - begin)
    plan.seconds += len(texts) / rate
