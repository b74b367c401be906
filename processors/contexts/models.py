"""Language models that write contexts, for any provider that LiteLLM supports.

Circuit, rate limits and retries are those of embedding models. Contexts are always bulk work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from processors.embedders.embedder import Urgency
from processors.embedders.registry import SharedTasks
from processors.embedders.remote.circuit_breaker import Circuit, CircuitOptions, CircuitStatus
from processors.embedders.remote.provider import Completion, Endpoint, Provider, RequestRefused
from processors.embedders.remote.rate_limiter import RateLimiter, RequestQueue
from processors.embedders.remote.sender import RequestSender, count_outcome
from runtime.errors import Unavailable, UnsupportedContent
from store.documents.costs import Usage

__all__ = ["Answer", "ContextModel", "ContextModels", "ContextOptions", "Messages"]

Messages = Sequence[Mapping[str, Any]]

_CONCURRENCY = 4
_PROBE: Messages = ({"role": "user", "content": "Answer with the word yes."},)
_PROBE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """Options of all language models; ``base_url`` '' is the default of the provider."""

    base_url: str = ""
    timeout: timedelta = timedelta(seconds=30)
    retries: int = 4
    circuit: CircuitOptions = field(default_factory=CircuitOptions)


@dataclass(frozen=True, slots=True)
class Answer:
    """Unchecked answer of a language model, and its usage for the ledger of costs."""

    text: str
    usage: Usage


class ContextModel:
    """One language model, with at most four requests in flight.

    Args:
        name: LiteLLM's name of the model.
        options: address, timeout, retries and circuit.
        provider: the model behind LiteLLM.
        rate_limiter: rate limiter shared by all workers. None means no limits.
    """

    def __init__(
        self,
        name: str,
        options: ContextOptions,
        provider: Provider,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        self._name = name
        self._provider = provider
        self._requests = asyncio.Semaphore(_CONCURRENCY)
        self.circuit = Circuit(name, self._probe, options.circuit)
        self._sender = RequestSender(name, self.circuit, options.retries)
        self._sender.queue = RequestQueue(provider.name, rate_limiter)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens with cl100k, an estimate for models of other providers."""
        return self._provider.count_tokens(texts)

    def most_usd(self, tokens_in: int, most_tokens: int) -> float | None:
        """Estimated cost of a request with the longest answer. It is None without a known price."""
        return self._provider.listed_cost_usd(tokens_in, most_tokens)

    async def ask(
        self, messages: Messages, tokens_in: int, most_tokens: int, lost: list[Usage]
    ) -> Answer:
        """Send a request of ``tokens_in`` tokens, with retries.

        A provider may charge for a request that timed out: the most that it can cost is appended to
        ``lost``.

        Raises:
            UnsupportedContent: the provider refuses this request, but accepts others.
            CircuitOpen: the model failed so often that no requests are sent.
            Unavailable, RateLimited: no successful response.
            ConfigurationError: the key is wrong, or the model is unknown.
        """
        async with self._requests:
            try:
                return await self._ask(messages, tokens_in, most_tokens, lost)
            except RequestRefused as error:
                if not await self._sender.accepts(self._probe, str(error)):
                    raise
                raise UnsupportedContent(error.message) from error

    async def close(self) -> None:
        """Stop probing a model that is down."""
        await self.circuit.close()

    async def _ask(
        self, messages: Messages, tokens_in: int, most_tokens: int, lost: list[Usage]
    ) -> Answer:
        async def request() -> Completion:
            try:
                return await self._send(messages, most_tokens)
            except Unavailable as error:
                if isinstance(error.__cause__, TimeoutError):
                    most_usd = self.most_usd(tokens_in, most_tokens)
                    lost.append(Usage(1, tokens_in, 0, most_tokens, most_usd))
                raise

        completion = await self._sender.send(request, lambda: tokens_in + most_tokens, Urgency.BULK)
        return Answer(completion.text, self._usage(completion, tokens_in))

    def _usage(self, completion: Completion, tokens_in: int) -> Usage:
        """Usage of a request; what the provider did not count is counted here."""
        cached = completion.tokens_cached
        whole = tokens_in if completion.tokens_in is None else completion.tokens_in
        tokens_out = completion.tokens_out
        if tokens_out is None:
            tokens_out = self.count_tokens([completion.text])[0]
        cost_usd = completion.cost_usd
        if cost_usd is None:
            cost_usd = self._provider.listed_cost_usd(whole, tokens_out)
        return Usage(1, max(0, whole - cached), cached, tokens_out, cost_usd)

    async def _send(self, messages: Messages, most_tokens: int) -> Completion:
        with count_outcome(self._name):
            return await self._provider.complete(messages, most_tokens)

    async def _probe(self) -> None:
        await self._send(_PROBE, _PROBE_TOKENS)


class ContextModels:
    """The language models of one process, by LiteLLM's names.

    Args:
        options: options of all models.
        rate_limiter: rate limiter shared by all workers. None means no limits.
    """

    def __init__(
        self, options: ContextOptions | None = None, rate_limiter: RateLimiter | None = None
    ) -> None:
        self._options = options or ContextOptions()
        self._rate_limiter = rate_limiter
        self._loaded: dict[str, ContextModel] = {}
        self._load_tasks = SharedTasks(self._load)

    async def model(self, name: str) -> ContextModel:
        """Return a model; no request is sent. Concurrent first uses share one import of LiteLLM.

        Raises:
            ConfigurationError: the key is not set, or the provider is unknown.
        """
        return await self._load_tasks.get(name)

    @property
    def circuits(self) -> list[CircuitStatus]:
        """State of the circuit of each model that was loaded."""
        return [model.circuit.status for model in self._loaded.values()]

    async def close(self) -> None:
        """Release every model."""
        for model in await self._load_tasks.close():
            await model.close()

    async def _load(self, name: str) -> ContextModel:
        options = self._options
        endpoint = Endpoint(
            name, base_url=options.base_url, timeout=options.timeout, key_setting=""
        )
        provider = await asyncio.to_thread(Provider, endpoint)
        model = ContextModel(name, options, provider, self._rate_limiter)
        self._loaded[name] = model
        return model
