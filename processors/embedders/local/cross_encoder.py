"""A user's own BERT cross-encoder: the relevance of texts to a question, without torch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from processors.embedders.embedder import Urgency
from processors.embedders.local.embedder import BATCH_TOKENS, length_sorted_batches
from processors.embedders.local.encoder import Encoder, Precision, Weights
from processors.embedders.local.precision import resolve_precision
from processors.embedders.local.priority_thread import SteppedThreads, Steps
from processors.embedders.local.sentence_config import Pooling
from processors.embedders.local.tokenizer import load_tokenizer
from processors.embedders.local.weights import (
    TOKENIZER_FILE,
    load_tensors,
    locate,
    model_name,
    read_shape,
)
from processors.embedders.remote.circuit_breaker import CircuitStatus
from processors.embedders.reranker import Relevances

__all__ = ["CrossEncoder"]

_CANDIDATES = 20


@dataclass(slots=True)
class _Work:
    """One call; ``batches`` are indices into ``rows`` and ``types``, the longest rows last."""

    relevances: npt.NDArray[np.float64]
    rows: list[list[int]] = field(default_factory=list)
    types: list[list[int]] = field(default_factory=list)
    batches: deque[list[int]] = field(default_factory=deque)

    def next_batch(self) -> list[int] | None:
        """Take a sub-batch for the calling thread. Returns None if all are taken."""
        with suppress(IndexError):
            return self.batches.pop()
        return None


class CrossEncoder:
    """Compares texts with a question on its own threads, each pair in one pass of the encoder.

    Relevance is the sigmoid of the model's logit. A pair over the model's limit is truncated, the
    longer part first. The weights are loaded by the first ``rerank``.

    Args:
        directory: a BERT model with a pooler and a classifier of one output.
        threads: number of sub-batches at the same time, each on one core.
        precision: number format of the products. None means the fastest on this processor.

    Raises:
        ConfigurationError: the model is missing, or not BERT-shaped.
    """

    def __init__(
        self, directory: Path, threads: int = 1, precision: Precision | None = None
    ) -> None:
        self._directory = locate(directory)
        self._shape = replace(read_shape(self._directory), pooling=Pooling.CLASSIFIER)
        self._precision = precision
        self._parallel_batches = threads + 1
        self._threads = SteppedThreads("reranker", threads)
        self._engine: tuple[Tokenizer, Encoder] | None = None
        self._loading = Lock()

    @property
    def model(self) -> str:
        """Directory and hash of the weights."""
        return model_name(self._directory)

    @property
    def provider(self) -> str:
        """Provider that gets the texts: none."""
        return ""

    @property
    def candidates(self) -> int:
        """Texts per question: about half a second of one core."""
        return _CANDIDATES

    @property
    def circuits(self) -> list[CircuitStatus]:
        """State of circuits: a model in this process has none."""
        return []

    async def load(self) -> None:
        """Load the weights and compile the graph.

        Raises:
            ConfigurationError: the weights do not match the model's configuration.
        """
        await self.rerank("warm", ["warm"])

    async def rerank(self, question: str, texts: Sequence[str]) -> Relevances:
        """Compare texts with a question. Cancelling stops it after the running sub-batches."""
        work = _Work(np.empty(len(texts)))
        pairs = [(question, text) for text in texts]
        await self._threads.run(self._prepare(work, pairs), Urgency.QUERY)
        try:
            await asyncio.gather(
                *(
                    self._threads.run(self._compare(work), Urgency.QUERY)
                    for _ in range(min(self._parallel_batches, len(work.batches)))
                )
            )
        finally:
            work.batches.clear()
        return Relevances(work.relevances)

    async def close(self) -> None:
        """Stop the threads; waiting calls raise ``Unavailable``."""
        await self._threads.close()
        self._engine = None

    def _prepare(self, work: _Work, pairs: Sequence[tuple[str, str]]) -> Steps[None]:
        """Tokenize pairs, and form sub-batches."""
        tokenizer = self._load()[0]
        yield
        for encoding in tokenizer.encode_batch_fast(list(pairs)):
            work.rows.append(encoding.ids)
            work.types.append(encoding.type_ids)
        work.batches.extend(length_sorted_batches([len(row) for row in work.rows], BATCH_TOKENS))

    def _compare(self, work: _Work) -> Steps[None]:
        """Compare sub-batches until none is left, in parallel with other threads."""
        encoder = self._load()[1]
        while batch := work.next_batch():
            rows, types = ([part[index] for index in batch] for part in (work.rows, work.types))
            logits = encoder.encode(rows, types)[:, 0].astype(np.float64)
            work.relevances[batch] = 1 / (1 + np.exp(-logits))
            yield

    def _load(self) -> tuple[Tokenizer, Encoder]:
        """Load the engine on first use. It is called on the threads only."""
        with self._loading:
            if self._engine is None:
                weights = Weights(load_tensors(self._directory), self._shape)
                precision = resolve_precision(self._precision, weights)
                self._engine = (
                    load_tokenizer(self._directory / TOKENIZER_FILE, self._shape.limit_tokens),
                    Encoder(weights, precision, self._parallel_batches),
                )
        return self._engine
