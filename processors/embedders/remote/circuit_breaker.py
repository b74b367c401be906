"""Circuit breaker: a model that is down gets no requests, except one probe at a time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from time import monotonic

import structlog

from processors.embedders.remote.provider import RequestRefused
from runtime import metrics
from runtime.errors import CircuitOpen, HeadraceError, RateLimited
from runtime.intervals import Backoff

__all__ = ["Circuit", "CircuitOptions", "CircuitState", "CircuitStatus"]

log = structlog.get_logger(__name__)

Probe = Callable[[], Awaitable[object]]


class CircuitState(StrEnum):
    """Closed: requests pass. Open: no request passes. Half-open: a probe is in flight."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class CircuitOptions:
    """Conditions for opening a circuit, and pauses between probes.

    It opens after ``failures`` in a row, none of them older than ``within``. The pauses between
    probes double from ``first_pause`` to ``longest_pause``, and the upper half of each is random.
    A question's request that is cancelled after ``cancelled_after`` without a response failed.
    """

    failures: int = 5
    within: timedelta = timedelta(seconds=60)
    first_pause: timedelta = timedelta(seconds=1)
    longest_pause: timedelta = timedelta(seconds=8)
    cancelled_after: timedelta = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class CircuitStatus:
    """State of a circuit as ``status`` shows it; ``reason`` is the last failure, else ''."""

    model: str
    state: CircuitState
    failures: int
    reason: str
    next_probe_s: float


class Circuit:
    """The circuit of one model in this process.

    Any response to a request resets the count of failures: a provider that refuses a text, or asks
    to slow down, is up. A refused probe counts as a failure, because then every text is refused.

    Args:
        model: the model's name, for errors and metrics.
        probe: sends one small request, without retries.
        options: conditions for opening, and pauses.
    """

    def __init__(self, model: str, probe: Probe, options: CircuitOptions | None = None) -> None:
        self._model = model
        self._probe = probe
        self._options = options or CircuitOptions()
        self._failed_at: list[float] = []
        self._reason = ""
        self._state = CircuitState.CLOSED
        self._closed = asyncio.Event()
        self._closed.set()
        self._next_probe = 0.0
        self._probing: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """True if no request passes, also while a probe is in flight."""
        return self._state is not CircuitState.CLOSED

    @property
    def status(self) -> CircuitStatus:
        """Current state, for people and for alarms."""
        wait = max(0.0, self._next_probe - monotonic()) if self.is_open else 0.0
        return CircuitStatus(
            self._model, self._state, len(self._failed_at), self._reason, round(wait, 3)
        )

    def require_closed(self) -> None:
        """Raise CircuitOpen, with the time to the next probe, if the model is down."""
        if self.is_open:
            wait = timedelta(seconds=max(0.0, self._next_probe - monotonic()))
            raise CircuitOpen(
                f"{self._model} is down and will be probed again soon: {self._reason}",
                retry_after=wait,
            )

    async def wait_until_closed(self) -> None:
        """Wait until requests pass."""
        await self._closed.wait()

    @contextmanager
    def record_outcome(self, *, may_time_out: bool = False) -> Iterator[None]:
        """Record the outcome of the request that is sent inside the ``with`` block.

        ``may_time_out``: the caller may cancel on its own timeout, which counts as a failure.
        Other cancellations do not: a request of the same call failed, or the worker is ending.
        """
        began_at = monotonic()
        try:
            yield
        except (RateLimited, RequestRefused):
            self._succeeded()
            raise
        except HeadraceError as error:
            self._failed(str(error))
            raise
        except asyncio.CancelledError:
            elapsed = monotonic() - began_at
            if may_time_out and elapsed > self._options.cancelled_after.total_seconds():
                self._failed(f"no response within {elapsed:.0f} s")
            raise
        self._succeeded()

    async def close(self) -> None:
        """Stop probing."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)

    def open(self, reason: str) -> None:
        """Block all requests until a probe succeeds: the model accepts none."""
        self._reason = reason
        if self.is_open:
            return
        self._closed.clear()
        self._set_state(CircuitState.OPEN)
        metrics.CIRCUITS_OPENED.inc(model=self._model)
        log.warning("circuit.opened", model=self._model, reason=reason)
        self._probing = asyncio.create_task(self._probe_until_closed(), name="circuit probe")

    def _succeeded(self) -> None:
        """Reset the count of failures, unless the circuit is open.

        A late response does not close a circuit: its request began before the model was down.
        """
        if not self.is_open:
            self._failed_at.clear()

    def _failed(self, reason: str) -> None:
        now, options = monotonic(), self._options
        recent = now - options.within.total_seconds()
        self._failed_at = [at for at in self._failed_at if at >= recent][-options.failures :]
        self._failed_at.append(now)
        self._reason = reason
        if len(self._failed_at) >= options.failures:
            self.open(reason)

    async def _probe_until_closed(self) -> None:
        backoff = Backoff(self._options.first_pause, self._options.longest_pause)
        for failures in itertools.count():
            wait_seconds = backoff.delay(failures).total_seconds()
            self._next_probe = monotonic() + wait_seconds
            await asyncio.sleep(wait_seconds)
            self._set_state(CircuitState.HALF_OPEN)
            if await self._probe_succeeds():
                break
            self._set_state(CircuitState.OPEN)
        self._failed_at.clear()
        self._reason = ""
        self._set_state(CircuitState.CLOSED)
        self._closed.set()
        log.warning("circuit.closed", model=self._model)

    async def _probe_succeeds(self) -> bool:
        try:
            await self._probe()
        except RateLimited:
            return True
        except Exception as error:  # noqa: BLE001 - if probing ended, it would stay open for ever
            self._reason = str(error) or repr(error)
            return False
        return True

    def _set_state(self, state: CircuitState) -> None:
        self._state = state
        metrics.CIRCUIT_STATE.set(metrics.CIRCUIT_VALUES[state], model=self._model)
