"""Sending of requests to one remote model: circuit, rate limits and retries of every kind of model.

Embedding models, rerankers and language models share it, so that a provider sees one behaviour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import perf_counter
from typing import TypeVar

import structlog

from processors.embedders.embedder import Urgency
from processors.embedders.remote.circuit_breaker import Circuit
from processors.embedders.remote.provider import BACKOFF, RequestRefused
from processors.embedders.remote.rate_limiter import LONGEST_WAITS, RequestQueue
from runtime import metrics, traces
from runtime.errors import CircuitOpen, HeadraceError, RateLimited, Retryable

__all__ = ["RequestSender", "count_outcome"]

log = structlog.get_logger(__name__)

T = TypeVar("T")
Send = Callable[[], Awaitable[T]]


class RequestSender:
    """Sends the requests of one model while its circuit is closed.

    Args:
        model: the model's name, for the log.
        circuit: the model's circuit.
        retries: number of retries of one request.
    """

    def __init__(self, model: str, circuit: Circuit, retries: int) -> None:
        self._model = model
        self._circuit = circuit
        self._retries = retries
        self.queue = RequestQueue("", None)

    async def send(self, request: Send[T], count_tokens: Callable[[], int], urgency: Urgency) -> T:
        """Send one request, with retries while the budget lasts, and return its response.

        ``count_tokens`` is called in a thread, and only if the provider has a limit of tokens.

        Raises:
            CircuitOpen: the model failed so often that no requests are sent.
            Unavailable, RateLimited: no successful response within the budget.
            ConfigurationError: the provider refuses the key, the model or the request.
        """
        for attempt in range(self._retries):
            try:
                return await self._try(request, count_tokens, urgency)
            except CircuitOpen:
                raise
            except Retryable as error:
                wait = _wait(error, attempt)
                if wait > LONGEST_WAITS[urgency]:
                    raise
                log.info("model.retried", model=self._model, attempt=attempt, reason=str(error))
                traces.current().note("retry", {"error.type": error.code})
                await asyncio.sleep(wait.total_seconds())
        return await self._try(request, count_tokens, urgency)

    async def accepts(self, probe: Send[object], refusal: str) -> bool:
        """Return whether the model accepts another request than the one it refused.

        A wrong route returns 404 for all; then the circuit opens.
        """
        try:
            await probe()
        except RequestRefused:
            self._circuit.open(refusal)
            return False
        except HeadraceError:
            return False
        return True

    async def _try(self, request: Send[T], count_tokens: Callable[[], int], urgency: Urgency) -> T:
        self._circuit.require_closed()
        tokens = await asyncio.to_thread(count_tokens) if self.queue.counts_tokens else 0
        await self.queue.acquire(tokens, urgency)
        self._circuit.require_closed()  # the wait may have been long
        try:
            with self._circuit.record_outcome(may_time_out=urgency is Urgency.QUERY):
                return await request()
        except RateLimited as error:
            await self.queue.block_requests(error.retry_after or BACKOFF.delay(0))
            raise


@contextmanager
def count_outcome(model: str) -> Iterator[None]:
    """Count the outcome and the duration of one request in the metrics."""
    outcome = "cancelled"
    began_at = perf_counter()
    try:
        yield
        outcome = "answered"
    except HeadraceError as error:
        outcome = error.code
        raise
    finally:
        metrics.MODEL_REQUESTS.inc(model=model, outcome=outcome)
        metrics.MODEL_REQUEST_SECONDS.observe(perf_counter() - began_at, model=model)


def _wait(error: Retryable, attempt: int) -> timedelta:
    retry_after = error.retry_after
    return BACKOFF.delay(attempt) if retry_after is None else retry_after + BACKOFF.delay(0)
