"""Interface of rerankers, which compare texts with a question one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from processors.embedders.remote.circuit_breaker import CircuitStatus
from store.documents.costs import Usage

__all__ = ["Relevances", "Reranker"]


@dataclass(frozen=True, slots=True)
class Relevances:
    """Relevance of each text to a question, float64 of shape (texts,), in the order of the texts.

    A model that runs in this process has values from 0 to 1; those of a provider are its own.
    ``usage`` is for the ledger of costs. It is None for a model that runs in this process.
    """

    values: npt.NDArray[np.float64]
    usage: Usage | None = None


class Reranker(Protocol):
    """Compares texts with a question.

    ``rerank`` raises ``Unavailable`` (down, an unusable response), ``RateLimited``, and
    ``ConfigurationError`` (no key, unknown model, refused request).
    """

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    @property
    def provider(self) -> str:
        """Name of the provider that gets the texts. It is '' for a model in this process."""
        ...

    @property
    def candidates(self) -> int:
        """Number of texts per question that suits the model's speed."""
        ...

    @property
    def circuits(self) -> list[CircuitStatus]:
        """State of the circuit, if the model is remote."""
        ...

    async def load(self) -> None:
        """Check the configuration without sending a request; raises ``ConfigurationError``."""
        ...

    async def rerank(self, question: str, texts: Sequence[str]) -> Relevances:
        """Compare texts with a question, without blocking the event loop."""
        ...

    async def close(self) -> None:
        """Release the model's resources."""
        ...
