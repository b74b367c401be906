"""Reports of the state of a replay, switch or drop to Redis, once per second."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from time import monotonic
from typing import Any, TypeVar

import structlog
from redis.asyncio import Redis

from events.heartbeats import Heartbeats
from events.names import Names
from events.replays import QuestionCount, ReplayError, ReplayState, ReplayStates
from runtime.errors import Conflict, HeadraceError

__all__ = ["ReplayPublication"]

log = structlog.get_logger(__name__)

_EVERY = timedelta(seconds=1)
_RATE_AFTER_SECONDS = 1.0

T = TypeVar("T")
Show = Callable[[str, int, int], None]


class ReplayPublication:
    """Publisher of the state of one operation on a project's generations.

    The operation goes on if Redis refuses a report, but it can't be followed or stopped then.

    Args:
        redis: connection of an operator.
        names: keys of the deployment.
        state: first state; its id is the one that others follow.
        show: also called with each step.
    """

    def __init__(
        self,
        redis: Redis,
        names: Names,
        state: ReplayState,
        show: Show,
    ) -> None:
        self._states = ReplayStates(redis, names)
        self._heartbeats = Heartbeats(redis, names)
        self._state = state.model_copy(update={"host": socket.gethostname(), "pid": os.getpid()})
        self._show = show
        self._findings: Callable[[], Mapping[str, Any]] = dict
        self._may_be_stopped: Callable[[], bool] = lambda: True
        self._questions = QuestionCount()
        self._stage_began = (monotonic(), 0)
        self._warned = False

    def follow(
        self, findings: Callable[[], Mapping[str, Any]], may_be_stopped: Callable[[], bool]
    ) -> None:
        """Publish ``findings`` with each report; ignore a stop while it would come too late."""
        self._findings = findings
        self._may_be_stopped = may_be_stopped

    def show(self, step: str, done: int, total: int) -> None:
        """Note and show the progress of a step; it is published with the next report."""
        self._show(step, done, total)
        stage = step.removeprefix(f"{self._state.project}: ")
        if stage != self._state.stage:
            self._stage_began = (monotonic(), done)
        began_at, first_done = self._stage_began
        seconds = monotonic() - began_at
        rate = (done - first_done) / seconds if seconds >= _RATE_AFTER_SECONDS else None
        self._update(
            stage=stage,
            done=done,
            total=total,
            rate_per_s=None if rate is None else round(rate, 1),
            seconds_left=round((total - done) / rate, 1) if rate and total > done else None,
        )

    async def run(
        self, work: Coroutine[Any, Any, T], as_json: Callable[[T], Mapping[str, Any]]
    ) -> T:
        """Run ``work``, and publish its state until it has ended, and its result at last.

        Raises:
            Conflict: a stop was requested; the work was cancelled, and has cleaned up.
        """
        task = asyncio.create_task(work)
        await self._report()
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_EVERY.total_seconds())
                if not task.done():
                    await self._report()
                    await self._obey(task)
        except BaseException:
            task.cancel()
            await asyncio.wait({task})
            await self._end("stopped")
            raise
        return await self._result(task, as_json)

    async def _result(self, task: asyncio.Task[T], as_json: Callable[[T], Mapping[str, Any]]) -> T:
        if task.cancelled():
            await self._end("stopped")
            raise Conflict(
                f"the {self._state.operation} of {self._state.project} was stopped on request",
                "run it again with the same options to resume it; nothing was switched",
            )
        error = task.exception()
        if error is None:
            result = task.result()
            self._findings = lambda: as_json(result)
            await self._end("succeeded")
            return result
        await self._end("failed", _described(error))
        raise error

    async def _end(self, state: str, error: ReplayError | None = None) -> None:
        self._update(state=state, error=error, seconds_left=None)
        await self._report()
        with contextlib.suppress(HeadraceError):
            await self._states.forget()

    async def _report(self) -> None:
        try:
            self._questions.add(await self._heartbeats.read())
            findings = dict(self._findings())
            self._update(questions=self._questions.total, result=findings or None)
            await self._states.put(self._state)
        except HeadraceError as error:
            if not self._warned:
                log.warning("replay.not_published", reason=error.message, remedy=error.remedy)
            self._warned = True

    async def _obey(self, task: asyncio.Task[Any]) -> None:
        with contextlib.suppress(HeadraceError):
            is_requested = await self._states.is_stop_requested(self._state.id)
            if is_requested and self._may_be_stopped():  # asked last: it may change meanwhile
                task.cancel()

    def _update(self, **values: Any) -> None:
        self._state = self._state.model_copy(update=values)


def _described(error: BaseException) -> ReplayError:
    if isinstance(error, HeadraceError):
        return ReplayError(code=error.code, message=error.message, remedy=error.remedy)
    return ReplayError(
        code="InternalError",
        message=f"unexpected {type(error).__name__}",
        remedy="see the log of the replay",
    )
