"""Vectors from a hash: for load tests and benches, where the model isn't what is measured."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from processors.inference.types import Embeddings, Urgency

__all__ = ["HASHING_MODEL", "HashingEmbedder"]

HASHING_MODEL = "local/hash-384"
_DIMENSIONS = 384


class HashingEmbedder:
    """Deterministic unit vectors that carry no meaning: equal texts meet, all others are far apart.

    Tokens are counted as whitespace-separated words.
    """

    @property
    def model(self) -> str:
        """``local/hash-384``."""
        return HASHING_MODEL

    @property
    def dimensions(self) -> int:
        """384, as the built-in model has."""
        return _DIMENSIONS

    @property
    def limit_tokens(self) -> int:
        """That of the built-in model, so that chunks come out alike."""
        return 254

    @property
    def texts_per_call(self) -> int:
        """As many as the built-in model takes."""
        return 256

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Words of each text."""
        return [len(text.split()) for text in texts]

    async def start(self) -> None:
        """Nothing to load."""

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        """One vector per text, whatever the urgency: 1/100 ms each, so no thread is needed."""
        del urgency
        digests = np.frombuffer(b"".join(map(_digest, texts)), np.uint8)
        centred = digests.reshape(len(texts), _DIMENSIONS).astype(np.float32) - np.float32(127.5)
        vectors = centred / np.linalg.norm(centred, axis=1, keepdims=True)
        return Embeddings(vectors, tokens=sum(self.count_tokens(texts)))

    async def close(self) -> None:
        """Nothing to release."""


def _digest(text: str) -> bytes:
    return hashlib.shake_128(text.encode("utf-8", "surrogatepass")).digest(_DIMENSIONS)
