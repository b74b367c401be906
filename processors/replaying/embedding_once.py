"""Models of a replay: every text is embedded once, and remembered before it is used."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from processors.inference import Inference
from processors.inference.types import Embedder, Embeddings, Urgency
from store.database import Database
from store.embeddings import cache_vectors, cached, known_hashes
from store.projects import Models as ModelIds
from store.types import Vector

__all__ = ["EmbeddingBill", "OnceModels"]

_TEXTS_AT_ONCE = 384
"""Embedded before they are remembered: the most that a death at the wrong moment costs."""


@dataclass
class EmbeddingBill:
    """What the models of a replay were asked for."""

    texts: int = 0
    tokens: int = 0
    cost_usd: float = 0.0


@dataclass
class OnceModels:
    """Gives out models that put vectors into the project's cache before they return them.

    ``told`` learns now and then how many texts were embedded so far: a batch may take minutes.
    """

    inference: Inference
    database: Database
    project_id: int
    bill: EmbeddingBill = field(default_factory=EmbeddingBill)
    told: Callable[[int], None] = lambda _texts: None
    _wrapped: dict[str, _OnceEmbedder] = field(default_factory=dict)

    async def embedder(self, model: str) -> Embedder:
        """The model of a full name; it is started when the first text has no vector.

        Raises:
            ConfigurationError: no such model, or it has no key.
        """
        if model not in self._wrapped:
            inner = await self.inference.loaded(model)
            ids = ModelIds(self.database)
            self._wrapped[model] = _OnceEmbedder(
                inner, ids, self.database, self.project_id, self.bill, self.told
            )
        return self._wrapped[model]

    async def known(
        self, project: str, model: str, hashes: Sequence[bytes]
    ) -> Mapping[bytes, Vector | None]:
        """Which texts have a vector that the store can take from its cache, by content hash."""
        del project
        async with self.database.scope(self.project_id) as connection:
            found = await known_hashes(connection, self.project_id, model, hashes)
        return dict.fromkeys(found)


class _OnceEmbedder:
    """An embedder that remembers, in the store's cache of vectors."""

    def __init__(
        self,
        inner: Embedder,
        ids: ModelIds,
        database: Database,
        project_id: int,
        bill: EmbeddingBill,
        told: Callable[[int], None],
    ) -> None:
        self._inner = inner
        self._ids = ids
        self._database = database
        self._project_id = project_id
        self._bill = bill
        self._told = told
        self._one_at_a_time = asyncio.Lock()

    @property
    def model(self) -> str:
        """Name of the model, as stored beside its vectors."""
        return self._inner.model

    @property
    def dimensions(self) -> int:
        """Width of its vectors."""
        return self._inner.dimensions

    @property
    def limit_tokens(self) -> int:
        """Longest text in tokens that is embedded whole."""
        return self._inner.limit_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Token counts by the model's own tokenizer."""
        return self._inner.count_tokens(texts)

    async def start(self) -> None:
        """It is started by now."""

    async def close(self) -> None:
        """Whoever made the inner one closes it."""

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        """Vectors of the texts; tokens and cost are those of the texts that were new.

        Two batches often have a text in common: the second takes what the first has paid for.
        """
        hashes = [hashlib.sha256(text.encode()).digest() for text in texts]
        spent = EmbeddingBill()
        async with self._one_at_a_time:
            async with self._database.scope(self._project_id) as connection:
                known = await cached(connection, self._project_id, self.model, hashes)
            missing = {
                one: text for one, text in zip(hashes, texts, strict=True) if one not in known
            }
            for part in _parts(list(missing)):
                known |= await self._paid(part, [missing[one] for one in part], urgency, spent)
        vectors = np.stack([known[one].astype(np.float32) for one in hashes])
        return Embeddings(vectors, spent.tokens, spent.cost_usd)

    async def _paid(
        self,
        hashes: Sequence[bytes],
        texts: Sequence[str],
        urgency: Urgency,
        spent: EmbeddingBill,
    ) -> dict[bytes, Vector]:
        result = await self._inner.embed(texts, urgency)
        vectors = {
            one: row.astype(np.float16) for one, row in zip(hashes, result.vectors, strict=True)
        }
        model_id = await self._ids.ensure(self.model, result.vectors.shape[1])
        async with self._database.scope(self._project_id) as connection:
            await cache_vectors(connection, self._project_id, model_id, vectors)
        for bill in (spent, self._bill):
            bill.texts += len(hashes)
            bill.tokens += result.tokens
            bill.cost_usd += result.cost_usd
        self._told(self._bill.texts)
        return vectors


def _parts(hashes: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [hashes[at : at + _TEXTS_AT_ONCE] for at in range(0, len(hashes), _TEXTS_AT_ONCE)]
