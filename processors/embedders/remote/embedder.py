"""Embedder of remote models, for any provider that LiteLLM supports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import timedelta

import numpy as np

from processors.embedders.embedder import Embeddings, Urgency
from processors.embedders.remote.circuit_breaker import Circuit, CircuitOptions
from processors.embedders.remote.provider import (
    Endpoint,
    Provider,
    RequestRefused,
    unit_vectors,
)
from processors.embedders.remote.rate_limiter import RateLimiter, RequestQueue
from processors.embedders.remote.sender import RequestSender, count_outcome
from runtime.errors import ConfigurationError, HeadraceError, Unavailable, UnsupportedContent
from store.documents.costs import Usage

__all__ = ["LiteLLMEmbedder", "input_type", "request_batches"]

_LIMIT_TOKENS = 512
_PROBE = ["width"]

_COHERE = "input_type", "search_document", "search_query"
_GOOGLE = "task_type", "RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"
_JINA = "task", "retrieval.passage", "retrieval.query"
_INPUT_TYPES = {
    ("cohere", ""): _COHERE,
    ("azure_ai", "cohere"): _COHERE,
    ("bedrock", "cohere"): _COHERE,
    ("voyage", ""): ("input_type", "document", "query"),
    ("nvidia_nim", ""): ("input_type", "passage", "query"),
    ("jina_ai", "embeddings-v3"): _JINA,
    ("jina_ai", "embeddings-v4"): _JINA,
    ("gemini", ""): _GOOGLE,
    ("vertex_ai", "gemini-embedding"): _GOOGLE,
    ("vertex_ai", "text-embedding"): _GOOGLE,
}
"""Option, its value for documents and that for questions, by provider and part of the model."""


class LiteLLMEmbedder:
    """Embeds over the network: makes batches, checks every response, and retries within a budget.

    Token counts are by OpenAI's cl100k, an estimate for other providers' models. Queries do not
    queue behind documents: ``concurrency`` limits requests for documents only.

    Args:
        model: LiteLLM's name of the model, e.g. ``voyage/voyage-code-3``.
        api_key: the provider's key. If empty, the provider's environment variable is used.
        base_url: address of the API. If empty, the provider's default is used.
        dimensions: width to ask for. None means the model's own.
        timeout: time limit of one request.
        retries: number of retries of one request.
        batch_texts: most texts of one request.
        batch_tokens: most tokens of one request; a single text may exceed it.
        concurrency: requests for documents in flight.
        name: name that the vectors are stored under. If empty, the model's name is used.
        rate_limiter: rate limiter shared by all workers. None means no limits.
        circuit: conditions under which the model counts as down.
    """

    def __init__(
        self,
        model: str,
        api_key: str = "",
        base_url: str = "",
        dimensions: int | None = None,
        timeout: timedelta = timedelta(seconds=30),
        retries: int = 4,
        batch_texts: int = 96,
        batch_tokens: int = 32_000,
        concurrency: int = 4,
        name: str = "",
        rate_limiter: RateLimiter | None = None,
        circuit: CircuitOptions | None = None,
    ) -> None:
        self._endpoint = Endpoint(model, api_key, base_url, dimensions, timeout)
        self._name = name or model
        self._batch_texts = batch_texts
        self._batch_tokens = batch_tokens
        self._requests = asyncio.Semaphore(concurrency)
        self._starting = asyncio.Lock()
        self._rate_limiter = rate_limiter
        self._loaded: Provider | None = None
        self._width: int | None = None
        self.circuit = Circuit(self._name, self._probe, circuit)
        self._sender = RequestSender(self._name, self.circuit, retries)

    @property
    def model(self) -> str:
        """Name that the vectors are stored under, with the width if one was chosen."""
        return self._name

    @property
    def dimensions(self) -> int:
        """Width of the vectors.

        Raises:
            Unavailable: the width is unknown before the first response; ``start`` requests one.
        """
        if self._width is None:
            raise Unavailable(f"the width of {self.model} is unknown before start()")
        return self._width

    @property
    def limit_tokens(self) -> int:
        """Longest text in tokens; at most 512, because chunks are cited and should be short."""
        return min(self._provider.limit_tokens or _LIMIT_TOKENS, _LIMIT_TOKENS)

    @property
    def texts_per_call(self) -> int:
        """Number of texts that fit one request at any length."""
        return max(1, min(self._batch_texts, self._batch_tokens // _LIMIT_TOKENS))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens with cl100k."""
        return self._provider.count_tokens(texts)

    @property
    def usd_per_token(self) -> float | None:
        """Price by LiteLLM's table. It is None if the table does not have it."""
        return self._provider.listed_usd_per_token

    async def load(self) -> None:
        """Import LiteLLM and check that the key is set; no request is sent.

        Raises:
            ConfigurationError: the key is not set, or the provider is unknown.
        """
        async with self._starting:
            if self._loaded is None:
                self._loaded = await asyncio.to_thread(Provider, self._endpoint)
                self._sender.queue = RequestQueue(self._loaded.name, self._rate_limiter)

    async def start(self) -> None:
        """Import LiteLLM and embed one text, which checks the key and shows the width.

        Raises:
            ConfigurationError: no key, unknown model, or another width than asked for.
            Unavailable, RateLimited: no successful response within the budget.
        """
        await self.load()
        async with self._starting:
            if self._width is None:
                await self._request(_PROBE, Urgency.LIVE)

    async def embed(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        """Embed texts as unit vectors, in several requests if needed.

        A question does not wait for the model's start, which may hang: its own response is proof
        that the model works.

        Raises:
            UnsupportedContent: the provider refuses these texts, but accepts others.
            CircuitOpen: the model failed so often that no requests are sent.
            Unavailable, RateLimited: no successful response within the budget.
            ConfigurationError: the key was revoked, the model is unknown, or the width changed.
        """
        if self._width is None:
            await (self.load() if texts and urgency is Urgency.QUERY else self.start())
        if not texts:
            return Embeddings(np.empty((0, self.dimensions), np.float32), tokens=0)
        counts = await asyncio.to_thread(self.count_tokens, texts)
        most_tokens = self._sender.queue.most_tokens(self._batch_tokens)
        batches = request_batches(counts, self._batch_texts, most_tokens)
        failed = asyncio.Event()
        tasks = [
            asyncio.create_task(self._enqueue([texts[index] for index in batch], urgency, failed))
            for batch in batches
        ]
        try:
            return _concatenate(await asyncio.gather(*tasks))
        except RequestRefused as error:
            if not await self._accepts_other_texts(str(error)):
                raise
            raise UnsupportedContent(error.message) from error
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """Stop probing a model that is down; nothing else is open between requests."""
        await self.circuit.close()

    @property
    def _provider(self) -> Provider:
        if self._loaded is None:
            raise Unavailable(f"{self.model} is used before start()")
        return self._loaded

    async def _enqueue(
        self, texts: Sequence[str], urgency: Urgency, failed: asyncio.Event
    ) -> Embeddings:
        """Send one request when its turn comes, unless another of the same call has ``failed``."""
        async with nullcontext() if urgency is Urgency.QUERY else self._requests:
            if failed.is_set():
                raise Unavailable(f"another request of the same call to {self.model} failed")
            try:
                return await self._request(texts, urgency)
            except HeadraceError:
                failed.set()
                raise

    async def _request(self, texts: Sequence[str], urgency: Urgency) -> Embeddings:
        """Send one request, with retries while the budget lasts."""
        return await self._sender.send(
            lambda: self._send(texts, is_question=urgency is Urgency.QUERY),
            lambda: sum(self.count_tokens(texts)),
            urgency,
        )

    async def _accepts_other_texts(self, refusal: str) -> bool:
        """Return whether the model accepts other texts; False before it embedded any."""
        if self._width is None:
            return False
        return await self._sender.accepts(lambda: self._send(_PROBE), refusal)

    async def _probe(self) -> None:
        await self.load()
        await self._send(_PROBE)

    async def _send(self, texts: Sequence[str], *, is_question: bool = False) -> Embeddings:
        options = input_type(self._provider.name, self._endpoint.model, is_question=is_question)
        with count_outcome(self.model):
            response = await self._provider.embed(texts, options)
            vectors = unit_vectors(self.model, response.data, len(texts))
            self._require_width(vectors.shape[1])
        self._width = vectors.shape[1]
        tokens = response.tokens or sum(self.count_tokens(texts))
        price = self._provider.listed_usd_per_token
        usage = Usage(1, tokens, cost_usd=None if price is None else tokens * price)
        return Embeddings(vectors, tokens, usage.cost_usd or 0.0, usage)

    def _require_width(self, width: int) -> None:
        expected = self._width or self._endpoint.dimensions
        if expected not in {None, width}:
            raise ConfigurationError(
                f"{self.model} sent vectors {width} wide where {expected} are expected",
                "check HEADRACE_MODEL_DIMENSIONS and the model's name",
            )


def input_type(provider: str, model: str, *, is_question: bool) -> dict[str, str]:
    """Option by which a provider distinguishes questions from documents, as its API names it.

    It is empty for a provider or a model that does not have one.
    """
    for (name, part), (option, document, question) in _INPUT_TYPES.items():
        if name == provider and part in model:
            return {option: question if is_question else document}
    return {}


def request_batches(
    counts: Sequence[int], most_texts: int, most_tokens: int
) -> Iterator[list[int]]:
    """Split indexes, in order, into requests of at most ``most_texts`` and ``most_tokens``.

    A single text over ``most_tokens`` is a request of its own.
    """
    batch: list[int] = []
    tokens = 0
    for index, count in enumerate(counts):
        if batch and (len(batch) == most_texts or tokens + count > most_tokens):
            yield batch
            batch, tokens = [], 0
        batch.append(index)
        tokens += count
    if batch:
        yield batch


def _concatenate(parts: Sequence[Embeddings]) -> Embeddings:
    return Embeddings(
        np.concatenate([part.vectors for part in parts]),
        sum(part.tokens for part in parts),
        sum(part.cost_usd for part in parts),
        sum((part.usage for part in parts if part.usage is not None), Usage()),
    )
