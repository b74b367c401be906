"""Embedding of texts into the project's cache, each text once for all concurrent callers.

``LiveEmbedding`` makes the vectors of small live changes before their write.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Protocol

import numpy as np
import structlog

from events.names import LogPosition
from processors.embedders.embedder import Embedder, Urgency
from processors.indexing.preparation import CutDocument, EmbeddedDocument
from runtime import metrics, traces
from runtime.errors import HeadraceError, Unavailable, UnsupportedContent
from runtime.traces import staged
from store.documents.costs import Usage, divide_usage
from store.documents.ledger import Share, divide
from store.documents.pending import PendingVectors
from store.generations.catalog import Generation
from store.store import Store

__all__ = [
    "LIVE_TEXTS",
    "LIVE_TIMEOUT",
    "Embedded",
    "LiveEmbedding",
    "Models",
    "SharedEmbedding",
]

log = structlog.get_logger(__name__)

Key = tuple[str, str, bytes]
"""Project, model and content hash."""


class Models(Protocol):
    """The models that recipes name."""

    async def embedder(self, model: str) -> Embedder:
        """Return the model of a full name, ready for use."""
        ...


@dataclass
class Embedded:
    """Number and cost of the texts sent to a model; ``refused`` are reasons by content hash."""

    texts: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    refused: dict[bytes, str] = field(default_factory=dict)

    def add(self, other: Embedded) -> None:
        """Add the counts of another call."""
        self.texts += other.texts
        self.tokens += other.tokens
        self.cost_usd += other.cost_usd
        self.refused |= other.refused


class SharedEmbedding:
    """Embeds texts and puts their vectors into the project's cache.

    If another call of this process is already embedding a text, its result is awaited instead.
    """

    def __init__(self, models: Models, pending: PendingVectors) -> None:
        self._models = models
        self._pending = pending
        self._in_flight: dict[Key, asyncio.Future[Embedded]] = {}

    async def embed(
        self,
        project: str,
        model: str,
        texts: Mapping[bytes, str],
        urgency: Urgency,
        payers: Mapping[bytes, LogPosition],
    ) -> Embedded:
        """Embed texts by content hash; afterwards the cache has every vector but the refused ones.

        Texts of other calls are counted by those calls. Vectors made before a failure stay cached.
        ``payers``: change that each text is embedded for, by content hash.

        Raises:
            Unavailable: the model or a server is down, or the call that embeds a text has failed.
            ConfigurationError: the model has no key, or sends vectors of another width than before.
        """
        others = {
            self._in_flight[project, model, content_hash]
            for content_hash in texts
            if (project, model, content_hash) in self._in_flight
        }
        new_texts = {
            content_hash: text
            for content_hash, text in texts.items()
            if (project, model, content_hash) not in self._in_flight
        }
        total = Embedded()
        if new_texts:
            total = await self._embed(project, model, new_texts, urgency, payers)
        # shielded: a caller that is cancelled must not cancel the others' future
        for part in await asyncio.gather(*map(asyncio.shield, others)):
            total.refused |= {
                content_hash: reason
                for content_hash, reason in part.refused.items()
                if content_hash in texts
            }
        return total

    async def _embed(
        self,
        project: str,
        model: str,
        texts: Mapping[bytes, str],
        urgency: Urgency,
        payers: Mapping[bytes, LogPosition],
    ) -> Embedded:
        future: asyncio.Future[Embedded] = asyncio.get_running_loop().create_future()
        keys = [(project, model, content_hash) for content_hash in texts]
        self._in_flight |= dict.fromkeys(keys, future)
        try:
            total = await self._embed_parts(project, model, texts, urgency, payers)
        except BaseException as error:
            _fail(future, error)
            raise
        else:
            future.set_result(total)
            return total
        finally:
            for key in keys:
                del self._in_flight[key]

    async def _embed_parts(
        self,
        project: str,
        model: str,
        texts: Mapping[bytes, str],
        urgency: Urgency,
        payers: Mapping[bytes, LogPosition],
    ) -> Embedded:
        """Embed all parts at once. If one fails, the others are completed: they are paid for."""
        embedder = await self._models.embedder(model)
        parts = _parts(texts, embedder.texts_per_call)
        results = await asyncio.gather(
            *(self._embed_part(project, embedder, part, urgency, payers) for part in parts),
            return_exceptions=True,
        )
        total = Embedded()
        for result in results:
            if isinstance(result, BaseException):
                raise result
            total.add(result)
        return total

    async def _embed_part(
        self,
        project: str,
        embedder: Embedder,
        texts: Mapping[bytes, str],
        urgency: Urgency,
        payers: Mapping[bytes, LogPosition],
    ) -> Embedded:
        try:
            with traces.embeddings(embedder.model, len(texts)) as span:
                result = await embedder.embed(list(texts.values()), urgency)
                span.set({"gen_ai.usage.input_tokens": result.tokens})
        except UnsupportedContent as error:
            return await self._embed_halves(project, embedder, texts, urgency, payers, error)
        vectors = {
            content_hash: vector.astype(np.float16)
            for content_hash, vector in zip(texts, result.vectors, strict=True)
        }
        usages = _usages(result.usage, texts, payers)
        await self._pending.remember(project, embedder.model, vectors, usages)
        labels = {"model": embedder.model, "project": project}
        metrics.CHUNKS_EMBEDDED.inc(len(texts), **labels)
        metrics.TOKENS_EMBEDDED.inc(result.tokens, **labels)
        metrics.COST_USD.inc(result.cost_usd, **labels)
        return Embedded(len(texts), result.tokens, result.cost_usd)

    async def _embed_halves(
        self,
        project: str,
        embedder: Embedder,
        texts: Mapping[bytes, str],
        urgency: Urgency,
        payers: Mapping[bytes, LogPosition],
        error: UnsupportedContent,
    ) -> Embedded:
        """Halve refused texts until each refusal concerns a single text."""
        if len(texts) == 1:
            log.warning("text.refused", project=project, model=embedder.model, reason=str(error))
            return Embedded(refused=dict.fromkeys(texts, str(error)))
        total = Embedded()
        for part in _parts(texts, (len(texts) + 1) // 2):
            total.add(await self._embed_part(project, embedder, part, urgency, payers))
        return total


def _usages(
    usage: Usage | None, texts: Mapping[bytes, str], payers: Mapping[bytes, LogPosition]
) -> dict[str, Usage]:
    """Divide the usage of a remote model among the changes, by their tokens."""
    if usage is None:
        return {}
    lengths: defaultdict[str, int] = defaultdict(int)
    for content_hash, text in texts.items():
        lengths[payers[content_hash].token] += len(text)
    return divide_usage(usage, lengths)


def _fail(future: asyncio.Future[Embedded], error: BaseException) -> None:
    """Pass an error to the future; a cancelled call must not cancel the calls that wait for it."""
    if not isinstance(error, HeadraceError):
        error = Unavailable(f"the call that embeds the same text has failed: {error!r}")
    future.set_exception(error)
    future.exception()  # asyncio would log an error that no other call waits for


def _parts(texts: Mapping[bytes, str], size: int) -> Iterator[dict[bytes, str]]:
    items = iter(texts.items())
    while part := dict(islice(items, size)):
        yield part


LIVE_TEXTS = 16
"""A batch with more new texts is written without their vectors."""

LIVE_TIMEOUT = timedelta(seconds=0.5)
"""Longest delay of a write for its vectors."""

ProjectModel = tuple[str, str]
"""Project and model."""


class LiveEmbedding:
    """Embeds the new texts of a live batch if they are few; all others wait for the embedder.

    ``shared_embedding`` is None if this process does not embed.
    """

    def __init__(self, store: Store, shared_embedding: SharedEmbedding | None) -> None:
        self._store = store
        self._shared_embedding = shared_embedding
        self._unfinished: set[asyncio.Task[Embedded]] = set()

    @staged("embed")
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
        log_positions = {
            content_hash: document.resolved.change.log_position
            for document in documents
            for content_hash in document.hashes
        }
        tasks = {
            key: asyncio.create_task(
                shared_embedding.embed(*key, texts, Urgency.LIVE, log_positions)
            )
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

    async def _missing(
        self, documents: Sequence[CutDocument]
    ) -> dict[ProjectModel, dict[bytes, str]]:
        """Return the texts that the cache lacks, by content hash."""
        texts: defaultdict[ProjectModel, dict[bytes, str]] = defaultdict(dict)
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
    tokens, cost_usd = document.sentence_tokens, document.sentence_cost_usd
    return EmbeddedDocument(
        change, write, share.texts, round(share.tokens + tokens), share.cost_usd + cost_usd
    )
