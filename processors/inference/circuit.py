"""A circuit breaker: a model that is down isn't asked by everybody, but by one probe at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from time import monotonic

import structlog

from processors.inference.provider import RequestRefused
from runtime import metrics
from runtime.errors import CircuitOpen, HeadraceError, RateLimited

__all__ = ["Circuit", "CircuitOptions", "CircuitState", "CircuitStatus"]

log = structlog.get_logger(__name__)

_TELLING_SILENCE = timedelta(seconds=2)
"""A request that was given up after that long without an answer counts as failed."""

Probe = Callable[[], Awaitable[object]]


class CircuitState(StrEnum):
    """Closed: requests pass. Open: none does. Half-open: a probe is on its way."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


_SHOWN = {CircuitState.CLOSED: 0.0, CircuitState.HALF_OPEN: 0.5, CircuitState.OPEN: 1.0}


@dataclass(frozen=True, slots=True)
class CircuitOptions:
    """When a circuit opens, and how it comes to close.

    It opens after ``failures`` in a row, none of them older than ``within``. The pauses between
    probes double from ``first_pause`` to ``longest_pause``, and the upper half of each is random.
    """

    failures: int = 5
    within: timedelta = timedelta(seconds=60)
    first_pause: timedelta = timedelta(seconds=1)
    longest_pause: timedelta = timedelta(seconds=8)


@dataclass(frozen=True, slots=True)
class CircuitStatus:
    """What ``status`` shows of a circuit; ``reason`` is the last failure, '' if there is none."""

    model: str
    state: CircuitState
    failures: int
    reason: str
    next_probe_s: float


class Circuit:
    """The circuit of one model in this process.

    Any answer to a request ends the count of failures: a provider that refuses a text, or asks to
    slow down, is there. One that refuses a probe takes nothing at all.

    Args:
        model: named in errors and metrics.
        probe: one small request, sent once.
        options: when it opens, and how long it pauses.
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
        """Whether no request passes; also while a probe is on its way."""
        return self._state is not CircuitState.CLOSED

    @property
    def status(self) -> CircuitStatus:
        """For people, and for alarms."""
        wait = max(0.0, self._next_probe - monotonic()) if self.is_open else 0.0
        return CircuitStatus(
            self._model, self._state, len(self._failed_at), self._reason, round(wait, 3)
        )

    def require_closed(self) -> None:
        """Refuse to ask a model that is down.

        Raises:
            CircuitOpen: with the time to the next probe.
        """
        if self.is_open:
            wait = timedelta(seconds=max(0.0, self._next_probe - monotonic()))
            raise CircuitOpen(
                f"{self._model} is down, and is tried again soon: {self._reason}", wait
            )

    async def closed(self) -> None:
        """Wait until requests pass."""
        await self._closed.wait()

    @contextmanager
    def watched(self, *, may_be_given_up: bool = False) -> Iterator[None]:
        """Learn from the request that is sent within.

        ``may_be_given_up``: somebody waits for it who loses patience. That any other is cancelled
        says nothing of the model: a request of the same call has failed, or the worker ends.
        """
        begun = monotonic()
        try:
            yield
        except (RateLimited, RequestRefused):
            self._succeeded()
            raise
        except HeadraceError as error:
            self._failed(str(error))
            raise
        except asyncio.CancelledError:
            silence = monotonic() - begun
            if may_be_given_up and silence > _TELLING_SILENCE.total_seconds():
                self._failed(f"no answer within {silence:.0f} s")
            raise
        self._succeeded()

    async def close(self) -> None:
        """End the probing."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)

    def open(self, reason: str) -> None:
        """Let no request pass until a probe is answered: the model takes nothing at all."""
        self._reason = reason
        if self.is_open:
            return
        self._closed.clear()
        self._turn(CircuitState.OPEN)
        metrics.CIRCUITS_OPENED.inc(model=self._model)
        log.warning("circuit.opened", model=self._model, reason=reason)
        self._probing = asyncio.create_task(self._probe_until_closed(), name="circuit probe")

    def _succeeded(self) -> None:
        """A late answer doesn't close a circuit: the request began before the model was down."""
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
        pause = self._options.first_pause
        while True:
            wait_seconds = pause.total_seconds() * random.uniform(0.5, 1)  # noqa: S311 - jitter
            self._next_probe = monotonic() + wait_seconds
            await asyncio.sleep(wait_seconds)
            self._turn(CircuitState.HALF_OPEN)
            if await self._answers():
                break
            self._turn(CircuitState.OPEN)
            pause = min(pause * 2, self._options.longest_pause)
        self._failed_at.clear()
        self._reason = ""
        self._turn(CircuitState.CLOSED)
        self._closed.set()
        log.warning("circuit.closed", model=self._model)

    async def _answers(self) -> bool:
        try:
            await self._probe()
        except RateLimited:
            return True
        except Exception as error:  # noqa: BLE001 - a probe that ends would leave it open for ever
            self._reason = str(error) or repr(error)
            return False
        return True

    def _turn(self, state: CircuitState) -> None:
        self._state = state
        metrics.CIRCUIT.set(_SHOWN[state], model=self._model)
