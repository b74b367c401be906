"""Distances in meaning between sentences, by which the strategy ``semantic`` cuts.

Parser processes have no model, so a document is cut twice: the first cut asks for distances, and
this module makes them from vectors. The vectors stay in the project's cache like those of chunks:
an edit embeds only the sentences that it changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from events.names import LogPosition
from processors.embedders.embedder import Urgency
from store.documents.ledger import divide
from store.types import Vector

__all__ = ["AskedDocument", "Measured", "SentenceDistances", "SentenceEmbedding", "distances_of"]

_WINDOW = 2
"""Sentences on each side of a boundary that are compared."""

_SCALE = 10_000
_READ_AT_ONCE = 4_096

ReadVectors = Callable[[str, str, Sequence[bytes]], Awaitable[Mapping[bytes, Vector]]]
"""Read the cached vectors of a project and model by content hash; others are left out."""


class Totals(Protocol):
    """Cost of a call to a model."""

    tokens: int
    cost_usd: float


class SentenceEmbedding(Protocol):
    """Embeds texts into the project's cache."""

    async def embed(
        self,
        project: str,
        model: str,
        texts: Mapping[bytes, str],
        urgency: Urgency,
        payers: Mapping[bytes, LogPosition],
    ) -> Totals:
        """Embed texts by content hash; the cache then has all of them that the model accepts.

        ``payers``: change that each text is embedded for, by content hash.
        """
        ...


@dataclass(frozen=True, slots=True)
class AskedDocument:
    """Runs of sentences of one document, with the content hash of each sentence.

    ``log_position`` is that of the change which brought the document.
    """

    runs: Sequence[Sequence[str]]
    hashes: Sequence[Sequence[bytes]]
    log_position: LogPosition


@dataclass(slots=True)
class Measured:
    """Distances of each run of a document, and the cost of the sentences embedded for it."""

    distances: list[list[int]] = field(default_factory=list)
    tokens: float = 0.0
    cost_usd: float = 0.0


class SentenceDistances:
    """Measures distances between sentences, embedding each sentence once per project and model."""

    def __init__(self, read_vectors: ReadVectors, embedding: SentenceEmbedding) -> None:
        self._read_vectors = read_vectors
        self._embedding = embedding

    async def of(
        self, project: str, model: str, documents: Sequence[AskedDocument], urgency: Urgency
    ) -> list[Measured]:
        """Measure the distances of documents, in the order given.

        A sentence that the model refuses has distance 0. The vectors are always those of the cache,
        so that the same text is cut the same again.

        Raises:
            Unavailable: the model or a server is down.
            ConfigurationError: the model has no key, or sends vectors of another width than before.
        """
        texts: dict[bytes, str] = {}
        payers: dict[bytes, int] = {}
        for number, document in enumerate(documents):
            for run, hashes in zip(document.runs, document.hashes, strict=True):
                texts |= zip(hashes, run, strict=True)
                payers = dict.fromkeys(hashes, number) | payers
        vectors = await self._read(project, model, list(texts))
        missing = {key: text for key, text in texts.items() if key not in vectors}
        measured = [Measured() for _ in documents]
        if missing:
            changes = {key: documents[payers[key]].log_position for key in missing}
            totals = await self._embedding.embed(project, model, missing, urgency, changes)
            shares = divide(missing, payers, totals.tokens, totals.cost_usd)
            for number, share in shares.items():
                measured[number].tokens = share.tokens
                measured[number].cost_usd = share.cost_usd
            vectors |= await self._read(project, model, list(missing))
        for document, result in zip(documents, measured, strict=True):
            result.distances = [
                distances_of([vectors.get(content_hash) for content_hash in hashes])
                for hashes in document.hashes
            ]
        return measured

    async def _read(self, project: str, model: str, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        vectors: dict[bytes, Vector] = {}
        for start in range(0, len(hashes), _READ_AT_ONCE):
            part = hashes[start : start + _READ_AT_ONCE]
            vectors |= await self._read_vectors(project, model, part)
        return vectors


def distances_of(vectors: Sequence[npt.NDArray[np.floating] | None]) -> list[int]:
    """Cosine distance before each vector, in 1/10,000: of the two before it and the two from it.

    ``vectors`` are unit vectors of sentences that follow each other, None for a missing one. They
    are compared with the precision of the cache. The first boundary, and one without vectors on
    both sides, has distance 0.
    """
    width = next((len(vector) for vector in vectors if vector is not None), 0)
    if not width:
        return [0] * len(vectors)
    rows = np.zeros((len(vectors) + 2 * _WINDOW, width), np.float32)
    for index, vector in enumerate(vectors, _WINDOW):
        if vector is not None:
            rows[index] = vector.astype(np.float16)
    count = len(vectors)
    # sums over the window only: an edit must not change a distance elsewhere in the last digit
    before = sum(rows[_WINDOW - back : _WINDOW - back + count] for back in range(1, _WINDOW + 1))
    after = sum(rows[_WINDOW + step : _WINDOW + step + count] for step in range(_WINDOW))
    norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    cosines = np.divide(
        np.einsum("ij,ij->i", before, after), norms, out=np.ones(count), where=norms > 0
    )
    return [max(0, round(_SCALE * (1 - float(cosine)))) for cosine in cosines]
