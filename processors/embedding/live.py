"""Vectors of small live changes, made before the write if the model responds quickly."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog

from processors.embedders.embedder import Urgency
from processors.embedding.single_flight import Embedded, Share, SharedEmbedding, divide
from processors.indexing.documents import CutDocument, EmbeddedDocument
from store.generations.catalog import Generation
from store.store import Store

__all__ = ["LIVE_TEXTS", "LIVE_TIMEOUT", "LiveEmbedding"]

log = structlog.get_logger(__name__)

LIVE_TEXTS = 16
"""A batch with more new texts is written without their vectors."""

LIVE_TIMEOUT = timedelta(seconds=0.5)
"""Longest delay of a write for its vectors."""

Key = tuple[str, str]
"""Project and model."""


class LiveEmbedding:
    """Embeds the new texts of a live batch if they are few; all others wait for the embedder.

    ``shared_embedding`` is None if this process does not embed.
    """

    def __init__(self, store: Store, shared_embedding: SharedEmbedding | None) -> None:
        self._store = store
        self._shared_embedding = shared_embedding
        self._unfinished: set[asyncio.Task[Embedded]] = set()

    async def embed(
        self, documents: Sequence[CutDocument], generation: Generation, urgency: Urgency
    ) -> list[EmbeddedDocument]:
        """Return documents ready to be written to a generation, in the order given.

        Raises:
            Unavailable: the database is down. If a model is down, only its vectors are delayed.
        """
        shares: Mapping[str, Share] = {}
        if self._shared_embedding is not None and urgency is Urgency.LIVE:
            shares = await self._embed_texts(self._shared_embedding, documents)
        return [_embedded_document(document, generation.id, shares) for document in documents]

    async def _embed_texts(
        self, shared_embedding: SharedEmbedding, documents: Sequence[CutDocument]
    ) -> Mapping[str, Share]:
        """Embed the new texts if they are few; return each event's share of the finished calls."""
        missing = await self._missing(documents)
        if not 0 < sum(map(len, missing.values())) <= LIVE_TEXTS:
            return {}
        tasks = {
            key: asyncio.create_task(shared_embedding.embed(*key, texts, Urgency.LIVE))
            for key, texts in missing.items()
        }
        # a late task continues: its vectors are paid for, and the embedder finds them in the cache
        self._unfinished.update(tasks.values())
        for task in tasks.values():
            task.add_done_callback(self._log_failure)
        await asyncio.wait(tasks.values(), timeout=LIVE_TIMEOUT.total_seconds())
        payers = _payers(documents)
        shares: dict[str, Share] = {}
        for key, task in tasks.items():
            if _succeeded(task):
                embedded = task.result()
                shares |= divide(missing[key], payers, embedded.tokens, embedded.cost_usd)
        return shares

    async def _missing(self, documents: Sequence[CutDocument]) -> dict[Key, dict[bytes, str]]:
        """Return the texts that the cache lacks, by content hash."""
        texts: defaultdict[Key, dict[bytes, str]] = defaultdict(dict)
        for document in documents:
            key = document.resolved.data.project, document.model
            texts[key] |= zip(document.hashes, document.texts, strict=True)
        for (project, model), by_hash in texts.items():
            for content_hash in await self._store.known_hashes(project, model, list(by_hash)):
                del by_hash[content_hash]
        return {key: by_hash for key, by_hash in texts.items() if by_hash}

    def _log_failure(self, task: asyncio.Task[Embedded]) -> None:
        self._unfinished.discard(task)
        if not task.cancelled() and not _succeeded(task):
            log.info("live.vectors_delayed", reason=repr(task.exception()))


def _succeeded(task: asyncio.Task[Embedded]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _payers(documents: Sequence[CutDocument]) -> dict[bytes, str]:
    """Map content hashes to event ids."""
    return {
        content_hash: document.resolved.change.event.id
        for document in documents
        for content_hash in document.hashes
    }


def _embedded_document(
    document: CutDocument, generation_id: int, shares: Mapping[str, Share]
) -> EmbeddedDocument:
    change = document.resolved.change
    share = shares.get(change.event.id, Share())
    write = document.write(generation_id)
    return EmbeddedDocument(change, write, share.texts, round(share.tokens), share.cost_usd)
