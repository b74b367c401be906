"""Interface of models for the pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from store.documents.costs import Usage

__all__ = ["Embedder", "Embeddings", "Urgency"]


class Urgency(IntEnum):
    """Priority of a call to a model: lower values are served first."""

    QUERY = 0
    LIVE = 1
    BULK = 2


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Unit vectors, float32 of shape (texts, dimensions), in the order of the texts.

    ``usage`` is for the ledger of costs. It is None for a model that runs in this process.
    """

    vectors: npt.NDArray[np.float32]
    tokens: int
    cost_usd: float = 0.0
    usage: Usage | None = None


class Embedder(Protocol):
    """Turns texts into unit vectors.

    ``embed`` raises ``Unavailable`` (down, retries used up), ``RateLimited``, and
    ``ConfigurationError`` (no key, unknown model, wrong width).
    """

    @property
    def model(self) -> str:
        """Name of the model, as stored beside its vectors."""
        ...

    @property
    def dimensions(self) -> int:
        """Width of the vectors."""
        ...

    @property
    def limit_tokens(self) -> int:
        """Longest text in tokens that is embedded whole."""
        ...

    @property
    def texts_per_call(self) -> int:
        """Recommended texts per ``embed`` call: a failure loses the vectors of all of them."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens with the model's own tokenizer, without special tokens."""
        ...

    async def start(self) -> None:
        """Load or probe the model, so that the first request is not slow."""
        ...

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        """Embed texts without blocking the event loop."""
        ...

    async def close(self) -> None:
        """Release the model's resources."""
        ...
