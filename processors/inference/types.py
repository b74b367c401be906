"""What a model can do for the pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Embedder", "Embeddings", "Urgency"]


class Urgency(IntEnum):
    """Who goes first at a model: lower is sooner."""

    QUERY = 0
    LIVE = 1
    BULK = 2


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Unit vectors, float32 of shape (texts, dimensions), in the order of the texts."""

    vectors: npt.NDArray[np.float32]
    tokens: int
    cost_usd: float = 0.0


class Embedder(Protocol):
    """Turns texts into unit vectors.

    Raises from ``embed``: ``Unavailable`` (down, out of tries), ``RateLimited``,
    ``ConfigurationError`` (no key, unknown model, wrong width).
    """

    @property
    def model(self) -> str:
        """Name of the model, as stored beside its vectors."""
        ...

    @property
    def dimensions(self) -> int:
        """Width of its vectors."""
        ...

    @property
    def limit_tokens(self) -> int:
        """Longest text in tokens that is embedded whole."""
        ...

    @property
    def texts_per_call(self) -> int:
        """Texts for one ``embed`` call: what a failure of it loses."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Token counts by the model's own tokenizer, special tokens left out."""
        ...

    async def start(self) -> None:
        """Load or probe the model, so that the first request isn't slow."""
        ...

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        """Embed texts; never blocks the event loop."""
        ...

    async def close(self) -> None:
        """Release what the model holds."""
        ...
