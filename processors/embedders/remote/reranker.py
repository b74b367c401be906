"""Reranker of remote models, for any provider that LiteLLM supports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from processors.embedders.embedder import Urgency
from processors.embedders.remote.circuit_breaker import Circuit, CircuitOptions, CircuitStatus
from processors.embedders.remote.provider import Endpoint, Provider, RequestRefused
from processors.embedders.remote.rate_limiter import RateLimiter, RequestQueue
from processors.embedders.remote.sender import RequestSender, count_outcome
from processors.embedders.reranker import Relevances
from runtime.errors import Unavailable
from store.documents.costs import Usage

__all__ = ["LiteLLMReranker", "relevances"]

_CANDIDATES = 50
_PROBE = "word"


class LiteLLMReranker:
    """Reranks over the network. Circuit, rate limits and retries are those of embedding models.

    The key is in the provider's own variable.

    Args:
        model: LiteLLM's name of the model, e.g. ``cohere/rerank-v3.5``.
        base_url: address of the API. If empty, the provider's default is used.
        timeout: time limit of one request.
        retries: number of retries of one request.
        circuit: conditions under which the model counts as down.
        rate_limiter: rate limiter shared by all workers. None means no limits.
    """

    def __init__(
        self,
        model: str,
        base_url: str = "",
        timeout: timedelta = timedelta(seconds=1),
        retries: int = 4,
        circuit: CircuitOptions | None = None,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        self._endpoint = Endpoint(model, base_url=base_url, timeout=timeout, key_setting="")
        self._rate_limiter = rate_limiter
        self._circuit = Circuit(model, self._probe, circuit)
        self._sender = RequestSender(model, self._circuit, retries)
        self._loading = asyncio.Lock()
        self._loaded: Provider | None = None

    @property
    def model(self) -> str:
        """LiteLLM's name of the model."""
        return self._endpoint.model

    @property
    def provider(self) -> str:
        """Name of the provider; '' before ``load``."""
        return "" if self._loaded is None else self._loaded.name

    @property
    def candidates(self) -> int:
        """Texts per question: one request compares them all."""
        return _CANDIDATES

    @property
    def circuits(self) -> list[CircuitStatus]:
        """State of the model's circuit."""
        return [self._circuit.status]

    async def load(self) -> None:
        """Import LiteLLM and check that the key is set; no request is sent.

        Raises:
            ConfigurationError: the key is not set, or the provider is unknown.
        """
        async with self._loading:
            if self._loaded is None:
                self._loaded = await asyncio.to_thread(Provider, self._endpoint)
                self._sender.queue = RequestQueue(self._loaded.name, self._rate_limiter)

    async def rerank(self, question: str, texts: Sequence[str]) -> Relevances:
        """Compare texts with a question in one request, with retries.

        Raises:
            CircuitOpen: the model failed so often that no requests are sent.
            Unavailable, RateLimited: no usable response within the budget.
            ConfigurationError: the provider refuses the key, the model or the texts.
        """
        await self.load()
        try:
            return await self._sender.send(
                lambda: self._send(question, texts),
                lambda: self._tokens(question, texts),
                Urgency.QUERY,
            )
        except RequestRefused as error:
            await self._sender.accepts(self._probe, str(error))
            raise

    async def close(self) -> None:
        """Stop probing a model that is down."""
        await self._circuit.close()

    async def _probe(self) -> None:
        await self.load()
        await self._send(_PROBE, [_PROBE])

    async def _send(self, question: str, texts: Sequence[str]) -> Relevances:
        if self._loaded is None:
            raise Unavailable(f"{self.model} is used before load()")
        with count_outcome(self.model):
            response = await self._loaded.rerank(question, texts)
            values = relevances(self.model, getattr(response, "results", None), len(texts))
        counts = _counts(response)
        tokens = counts.get("total_tokens") or counts.get("input_tokens")
        if tokens is None:
            tokens = await asyncio.to_thread(self._tokens, question, texts)
        return Relevances(values, Usage(1, tokens, cost_usd=_price(self._loaded, counts, tokens)))

    def _tokens(self, question: str, texts: Sequence[str]) -> int:
        """Tokens that providers charge: the question counts once for each text."""
        if self._loaded is None:
            return 0
        asked, *counts = self._loaded.count_tokens([question, *texts])
        return asked * len(texts) + sum(counts)


def relevances(model: str, results: Any, texts: int) -> npt.NDArray[np.float64]:
    """Relevance of each text to the question, of shape (texts,).

    Args:
        model: the model's name, for errors.
        results: the ``results`` list of a Cohere rerank response, in any order.
        texts: number of texts that were sent.

    Raises:
        Unavailable: relevances are missing, duplicate, not finite, or of a text that was not sent.
            The next response may be valid.
    """
    if not isinstance(results, list) or not all(hasattr(item, "get") for item in results):
        raise Unavailable(f"{model} sent a response without a list of results")
    by_index = {item.get("index"): item.get("relevance_score") for item in results}
    if len(results) != texts or by_index.keys() != set(range(texts)):
        raise Unavailable(f"{model} sent {len(results)} results that do not match {texts} texts")
    try:
        values = np.array([by_index[index] for index in range(texts)], np.float64)
    except (TypeError, ValueError) as error:
        raise Unavailable(f"{model} sent relevances that are not numbers") from error
    if values.shape != (texts,) or not np.isfinite(values).all():
        raise Unavailable(f"{model} sent relevances that are not finite")
    return values


def _counts(response: Any) -> dict[str, int]:
    """Positive counts that a provider reports: tokens, and searches of up to 100 texts."""
    meta = getattr(response, "meta", None)
    parts = [meta.get("billed_units"), meta.get("tokens")] if isinstance(meta, dict) else []
    counts = {
        name: value for part in parts if isinstance(part, dict) for name, value in part.items()
    }
    return {name: value for name, value in counts.items() if type(value) is int and value > 0}


def _price(provider: Provider, counts: Mapping[str, int], tokens: int) -> float | None:
    """Price of a reranking by LiteLLM's table, which has one by search or by token."""
    if provider.usd_per_search is not None:
        return provider.usd_per_search * counts.get("search_units", 1)
    price = provider.listed_usd_per_token
    return None if price is None else price * tokens
