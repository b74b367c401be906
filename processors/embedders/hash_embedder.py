"""Vectors from a hash, for load tests and benches that do not measure the model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from processors.embedders.embedder import Embeddings, Urgency

__all__ = ["HASHING_MODEL", "HashingEmbedder"]

HASHING_MODEL = "local/hash-384"
_DIMENSIONS = 384


class HashingEmbedder:
    """Makes deterministic unit vectors without meaning: equal for equal texts, else far apart.

    Tokens are counted as whitespace-separated words.
    """

    @property
    def model(self) -> str:
        """Name of the model, ``local/hash-384``."""
        return HASHING_MODEL

    @property
    def dimensions(self) -> int:
        """Width of the vectors: 384, as in the built-in model."""
        return _DIMENSIONS

    @property
    def limit_tokens(self) -> int:
        """Limit of the built-in model, so that chunks are cut alike."""
        return 254

    @property
    def texts_per_call(self) -> int:
        """Texts per call, as in the built-in model."""
        return 256

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the words of each text."""
        return [len(text.split()) for text in texts]

    async def start(self) -> None:
        """Do nothing: there is nothing to load."""

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        """Make one vector per text. It takes 1/100 ms each, so it needs no thread."""
        del urgency
        digests = np.frombuffer(b"".join(map(_digest, texts)), np.uint8)
        centred = digests.reshape(len(texts), _DIMENSIONS).astype(np.float32) - np.float32(127.5)
        vectors = centred / np.linalg.norm(centred, axis=1, keepdims=True)
        return Embeddings(vectors, tokens=sum(self.count_tokens(texts)))

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _digest(text: str) -> bytes:
    return hashlib.shake_128(text.encode("utf-8", "surrogatepass")).digest(_DIMENSIONS)
