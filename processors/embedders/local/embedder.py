"""The local model: all-MiniLM-L6-v2, or another BERT sentence encoder, without torch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import numpy as np
from tokenizers import Tokenizer

from processors.embedders.embedder import Embeddings, Urgency
from processors.embedders.local.encoder import Encoder, Precision, Weights
from processors.embedders.local.precision import resolve_precision
from processors.embedders.local.priority_thread import SteppedThreads, Steps
from processors.embedders.local.products import load_ranges
from processors.embedders.local.sentence_config import read_sentence_config
from processors.embedders.local.tokenizer import SPECIAL_TOKENS, TokenCounter, load_tokenizer
from processors.embedders.local.weights import (
    TOKENIZER_FILE,
    Array,
    load_tensors,
    locate,
    model_name,
    read_shape,
    weights_digest,
)

__all__ = ["BATCH_TOKENS", "LocalEmbedder", "length_sorted_batches"]

BATCH_TOKENS = 512
"""Padded tokens of a sub-batch: 4 % slower than 2,048, but a query waits a quarter as long."""
_TEXTS_PER_STEP = 64
_TEXTS_PER_CALL = 256


@dataclass(frozen=True, slots=True)
class _Engine:
    tokenizer: Tokenizer
    encoder: Encoder
    precision: Precision


@dataclass(slots=True)
class _Work:
    """One call; ``batches`` are indices into ``rows``, the longest rows last."""

    texts: Sequence[str]
    vectors: Array
    rows: list[list[int]] = field(default_factory=list)
    batches: deque[list[int]] = field(default_factory=deque)

    def next_batch(self) -> list[int] | None:
        """Take a sub-batch for the calling thread. Returns None if all are taken.

        The longest are taken first, so that the threads of one call end at nearly the same time.
        """
        with suppress(IndexError):
            return self.batches.pop()
        return None


class LocalEmbedder:
    """Embeds on its own threads, each with a stream of the engine.

    A question waits for one sub-batch of documents at most. Texts over ``limit_tokens`` are
    truncated. The weights are loaded by ``start``, or by the first ``embed``.

    Args:
        model_directory: a sentence-transformers BERT model. None means the packaged
            all-MiniLM-L6-v2.
        threads: number of sub-batches of documents at the same time, each on one core.
        precision: number format of the products. None means the fastest on this processor.

    Raises:
        ConfigurationError: the model is missing, not BERT-shaped, or not the official release.
    """

    def __init__(
        self,
        model_directory: Path | None = None,
        threads: int = 1,
        precision: Precision | None = None,
    ) -> None:
        self._directory = locate(model_directory)
        self._model = model_name(self._directory)
        self._shape = read_shape(self._directory)
        self._config = read_sentence_config(self._directory)
        self._requested_precision = precision
        self._parallel_batches = threads
        self._count = TokenCounter(self._directory / TOKENIZER_FILE)
        prompts = [self._config.question_prompt, self._config.document_prompt]
        self._prompt_tokens = max(self._count(prompts))
        self._threads = SteppedThreads("local model", threads)
        self._engine: _Engine | None = None
        self._loading = Lock()

    @property
    def model(self) -> str:
        """Name: ``local/all-MiniLM-L6-v2``, or the directory and hash of other weights."""
        return self._model

    @property
    def dimensions(self) -> int:
        """Width of the encoder."""
        return self._shape.width

    @property
    def limit_tokens(self) -> int:
        """Longest text in tokens that the model was trained for, without special tokens.

        The prompts of the model fit beside it.
        """
        return self._shape.limit_tokens - SPECIAL_TOKENS - self._prompt_tokens

    @property
    def texts_per_call(self) -> int:
        """Texts per call, enough to form sub-batches of similar length."""
        return _TEXTS_PER_CALL

    @property
    def precision(self) -> Precision | None:
        """Precision of the engine. It is None before ``start``."""
        return None if self._engine is None else self._engine.precision

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens, without special tokens."""
        return self._count(texts)

    async def start(self) -> None:
        """Load the weights and compile the graph (about half a second)."""
        await self.embed(["warm"], Urgency.QUERY)

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        """Embed texts as unit vectors; the more urgent of two calls runs first.

        Questions and documents have the prompts of the model's directory.
        """
        is_question = urgency is Urgency.QUERY
        prompt = self._config.question_prompt if is_question else self._config.document_prompt
        texts = [prompt + text for text in texts] if prompt else texts
        work = _Work(texts, np.empty((len(texts), self.dimensions), np.float32))
        if len(texts) > 1:
            # a single text, usually a question, is tokenized and encoded in one job
            await self._threads.run(self._prepare(work), urgency)
        parallel_batches = min(self._parallel_batches, max(1, len(work.batches)))
        try:
            await asyncio.gather(
                *(self._threads.run(self._encode(work), urgency) for _ in range(parallel_batches))
            )
        finally:
            work.batches.clear()
        tokens = sum(len(row) - SPECIAL_TOKENS for row in work.rows)
        return Embeddings(work.vectors, tokens)

    async def close(self) -> None:
        """Stop the threads; waiting calls raise ``Unavailable``."""
        await self._threads.close()
        self._engine = None

    def _prepare(self, work: _Work) -> Steps[None]:
        """Tokenize the texts, and form sub-batches."""
        tokenizer = self._load().tokenizer
        for first in range(0, len(work.texts), _TEXTS_PER_STEP):
            encodings = tokenizer.encode_batch_fast(work.texts[first : first + _TEXTS_PER_STEP])
            work.rows.extend(encoding.ids for encoding in encodings)
            yield
        work.batches.extend(length_sorted_batches([len(row) for row in work.rows], BATCH_TOKENS))

    def _encode(self, work: _Work) -> Steps[None]:
        """Encode sub-batches until none is left, in parallel with other threads."""
        if len(work.rows) < len(work.texts):
            yield from self._prepare(work)
        encoder = self._load().encoder
        while batch := work.next_batch():
            work.vectors[batch] = encoder.encode([work.rows[index] for index in batch])
            yield

    def _load(self) -> _Engine:
        """Load the engine on first use. It is called on the threads only."""
        with self._loading:
            if self._engine is None:
                weights = Weights(
                    load_tensors(self._directory),
                    self._shape,
                    load_ranges(weights_digest(self._directory)),
                )
                precision = resolve_precision(self._requested_precision, weights)
                self._engine = _Engine(
                    load_tokenizer(self._directory / TOKENIZER_FILE, self._shape.limit_tokens),
                    Encoder(weights, precision, self._parallel_batches + 1),
                    precision,
                )
        return self._engine


def length_sorted_batches(lengths: Sequence[int], budget_tokens: int) -> Iterator[list[int]]:
    """Group indexes by similar length; a batch, padded to its longest text, fits the budget.

    A single text over the budget is a batch of its own.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > budget_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
