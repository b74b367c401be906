"""The local model: all-MiniLM-L6-v2, or another BERT sentence encoder, without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from processors.inference.graph import Encoder
from processors.inference.stepping import SteppedThread, Steps
from processors.inference.tokenizer import SPECIAL_TOKENS, TokenCounter, load_tokenizer
from processors.inference.types import Embeddings, Urgency
from processors.inference.weights import (
    TOKENIZER_FILE,
    load_tensors,
    locate,
    model_name,
    read_shape,
)

__all__ = ["LocalEmbedder", "length_sorted_batches"]

_BATCH_TOKENS = 512
"""Padded tokens of a sub-batch: 4 % slower than 2,048, and a query waits a quarter as long."""
_TEXTS_PER_STEP = 64


class LocalEmbedder:
    """Embeds on one thread of its own; a query waits for one sub-batch of documents at most.

    Texts over ``limit_tokens`` are cut. The weights are loaded by ``start``, or by the first
    ``embed``.

    Args:
        model_directory: a sentence-transformers BERT model; None: the packaged all-MiniLM-L6-v2.
        threads: processor threads of the engine.

    Raises:
        ConfigurationError: the model is missing, not BERT-shaped, or not the official release.
    """

    def __init__(self, model_directory: Path | None = None, threads: int = 1) -> None:
        self._directory = locate(model_directory)
        self._model = model_name(self._directory)
        self._shape = read_shape(self._directory)
        self._threads = threads
        self._count = TokenCounter(self._directory / TOKENIZER_FILE)
        self._thread = SteppedThread("local model")
        self._engine: tuple[Tokenizer, Encoder] | None = None

    @property
    def model(self) -> str:
        """``local/all-MiniLM-L6-v2``; other weights are named by their directory and hash."""
        return self._model

    @property
    def dimensions(self) -> int:
        """Width of the encoder."""
        return self._shape.width

    @property
    def limit_tokens(self) -> int:
        """What the model was trained for, special tokens left out."""
        return self._shape.limit_tokens - SPECIAL_TOKENS

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Token counts, special tokens left out."""
        return self._count(texts)

    async def start(self) -> None:
        """Load the weights and compile the graph (about half a second)."""
        await self._thread.run(self._steps(["warm"]), Urgency.QUERY)

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        """Unit vectors of the texts; the more urgent of two calls goes ahead."""
        return await self._thread.run(self._steps(list(texts)), urgency)

    async def close(self) -> None:
        """Stop the thread; calls that wait raise ``Unavailable``."""
        await self._thread.close()
        self._engine = None

    def _steps(self, texts: list[str]) -> Steps[Embeddings]:
        tokenizer, encoder = self._load()
        rows: list[list[int]] = []
        for first in range(0, len(texts), _TEXTS_PER_STEP):
            encodings = tokenizer.encode_batch_fast(texts[first : first + _TEXTS_PER_STEP])
            rows.extend(encoding.ids for encoding in encodings)
            yield
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        for batch in length_sorted_batches([len(row) for row in rows], _BATCH_TOKENS):
            vectors[batch] = encoder.encode([rows[index] for index in batch])
            yield
        return Embeddings(vectors, tokens=sum(map(len, rows)) - SPECIAL_TOKENS * len(rows))

    def _load(self) -> tuple[Tokenizer, Encoder]:
        """The engine; only ever called on the thread."""
        if self._engine is None:
            tensors = load_tensors(self._directory)
            self._engine = (
                load_tokenizer(self._directory / TOKENIZER_FILE, self._shape.limit_tokens),
                Encoder(tensors, self._shape, self._threads),
            )
        return self._engine


def length_sorted_batches(lengths: Sequence[int], budget_tokens: int) -> Iterator[list[int]]:
    """Indexes in batches of similar length; a batch, padded to its longest, stays in the budget.

    A single text over the budget makes a batch of its own.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > budget_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
