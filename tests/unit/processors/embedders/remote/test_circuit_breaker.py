"""Circuit breaker: while it is open, only a probe calls the model."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from processors.embedders.remote.circuit_breaker import Circuit, CircuitOptions, CircuitState
from processors.embedders.remote.provider import RequestRefused
from processors.recipes import model_options
from runtime.errors import (
    CircuitOpen,
    ConfigurationError,
    HeadraceError,
    RateLimited,
    Unavailable,
)
from runtime.settings import Settings
from tests.support.waiting import eventually, within

FAST = CircuitOptions(
    failures=3,
    first_pause=timedelta(milliseconds=10),
    longest_pause=timedelta(milliseconds=20),
)


class Model:
    """Model that answers a probe once ``up``."""

    def __init__(self) -> None:
        self.up = False
        self.probes = 0

    async def probe(self) -> None:
        self.probes += 1
        if not self.up:
            raise Unavailable("no answer")


@asynccontextmanager
async def circuit_of(model: Model, options: CircuitOptions = FAST) -> AsyncIterator[Circuit]:
    circuit = Circuit("test", model.probe, options)
    yield circuit
    await circuit.close()


def request(circuit: Circuit, error: BaseException | None = None) -> None:
    """Make a request that ends with the error."""
    with contextlib.suppress(HeadraceError, asyncio.CancelledError), circuit.record_outcome():
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [Unavailable("500"), ConfigurationError("refused the key")])
async def test_failures_in_a_row_open_it(error: Exception) -> None:
    """Failures in a row open the circuit, and its error contains the last failure."""
    async with circuit_of(Model()) as circuit:
        for _ in range(FAST.failures):
            circuit.require_closed()
            request(circuit, error)
        with pytest.raises(CircuitOpen, match=str(error)) as refused:
            circuit.require_closed()
        assert refused.value.retry_after is not None
        assert refused.value.retry_after <= FAST.first_pause


@pytest.mark.parametrize("answer", [None, RateLimited("slow down"), RequestRefused("too long")])
async def test_any_answer_between_failures_keeps_it_closed(answer: Exception | None) -> None:
    """An answer between failures keeps the circuit closed, also an error answer of the provider."""
    async with circuit_of(Model()) as circuit:
        for error in [Unavailable("500"), Unavailable("500"), answer] * 3:
            request(circuit, error)
        assert not circuit.is_open


async def test_old_failures_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures a minute apart do not open the circuit."""
    clock = [0.0]
    monkeypatch.setattr("processors.embedders.remote.circuit_breaker.monotonic", lambda: clock[0])
    async with circuit_of(Model()) as circuit:
        for _ in range(5):
            request(circuit, Unavailable("500"))
            clock[0] += 61
        assert not circuit.is_open


async def test_a_model_that_only_stalls_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timeouts of one request at a time open the circuit with default settings."""
    clock = [0.0]
    monkeypatch.setattr("processors.embedders.remote.circuit_breaker.monotonic", lambda: clock[0])
    options = model_options(Settings())
    async with circuit_of(Model(), options.circuit) as circuit:
        for attempt in range(options.retries + 1):
            clock[0] += options.timeout.total_seconds() + 2.0**attempt
            request(circuit, Unavailable("no answer"))
        assert circuit.is_open


async def test_only_a_probe_closes_it() -> None:
    """Only a successful probe closes the circuit, not a late answer to an older request."""
    model = Model()
    async with circuit_of(model) as circuit:
        for _ in range(FAST.failures):
            request(circuit, Unavailable("500"))
        request(circuit)
        await eventually(lambda: model.probes > 2, "probes")
        assert circuit.is_open
        model.up = True
        async with within(5):
            await circuit.wait_until_closed()
        circuit.require_closed()
        assert circuit.status.state is CircuitState.CLOSED
        assert circuit.status.failures == 0


async def test_questions_that_gave_up_open_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled questions open the circuit if the model was silent.

    A quick cancellation does not count, and neither does one of a request that can't be given up.
    """
    clock = [0.0]
    monkeypatch.setattr("processors.embedders.remote.circuit_breaker.monotonic", lambda: clock[0])
    async with circuit_of(Model()) as circuit:
        for silence, asked, is_open in (
            (0.1, True, False),
            (5.0, False, False),
            (5.0, True, True),
        ):
            for _ in range(FAST.failures):
                request = circuit.record_outcome(may_time_out=asked)
                with contextlib.suppress(asyncio.CancelledError), request:
                    clock[0] += silence
                    raise asyncio.CancelledError
            assert circuit.is_open is is_open


async def test_a_probe_that_is_refused_does_not_close_it() -> None:
    """A refused probe leaves the circuit open until a later one succeeds."""
    refusals = [RequestRefused("no such model")] * 2

    async def probe() -> None:
        if refusals:
            raise refusals.pop()

    circuit = Circuit("test", probe, FAST)
    circuit.open("no such model")
    with pytest.raises(CircuitOpen, match="no such model"):
        circuit.require_closed()
    async with within(5):
        await circuit.wait_until_closed()
    assert not refusals
    await circuit.close()
