"""State of each replay, switch and drop, kept in Redis for operators' pages and commands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis.asyncio import Redis

from events.heartbeats import Heartbeat
from events.names import Names
from events.server.connection import redis_errors
from runtime.errors import NotFound

__all__ = [
    "SILENT_AFTER",
    "Operation",
    "QuestionCount",
    "Questions",
    "ReplayError",
    "ReplayState",
    "ReplayStates",
]

SILENT_AFTER = timedelta(seconds=15)
"""A replay without a report for this long counts as lost; replays report every second."""

_KEPT = 50
_MODEL = ConfigDict(allow_inf_nan=False, extra="ignore", frozen=True)
_STOP_SUFFIX = ":stop"

_REPLIES = re.compile(
    r"(?:queries|headrace_questions_total)\{(?:.*,)?outcome=(?:query\.)?(answered|failed)[,}]"
)
"""Metric of the replies in a heartbeat, of this version and of the one before it."""

Operation = Literal["replay", "plan", "switch", "rollback", "drop"]
Phase = Literal["running", "succeeded", "failed", "stopped", "lost"]


class Questions(BaseModel):
    """Replies to questions since the start of a replay, from all workers."""

    model_config = _MODEL
    answered: int = 0
    failed: int = 0


class QuestionCount:
    """Sum of the workers' replies since the first heartbeats, across restarts of workers."""

    def __init__(self) -> None:
        self._former: dict[str, Mapping[str, float]] | None = None
        self._counts = {"answered": 0.0, "failed": 0.0}

    @property
    def total(self) -> Questions:
        """Number of replies of each kind."""
        return Questions(
            answered=round(self._counts["answered"]), failed=round(self._counts["failed"])
        )

    def add(self, beats: Sequence[Heartbeat]) -> None:
        """Add the replies that each worker has sent since its former heartbeat."""
        replies = {beat.worker: _replies(beat) for beat in beats}
        if self._former is not None:
            for worker, counts in replies.items():
                former = self._former.get(worker, {})
                for outcome, count in counts.items():
                    self._counts[outcome] += max(0.0, count - former.get(outcome, 0.0))
        self._former = {**(self._former or {}), **replies}


def _replies(beat: Heartbeat) -> dict[str, float]:
    counts = {"answered": 0.0, "failed": 0.0}
    for name, value in (beat.state.get("metrics") or {}).items():
        match = _REPLIES.match(name)
        if match is not None:
            counts[match[1]] += value
    return counts


class ReplayError(BaseModel):
    """Reason for which a replay failed; ``code`` is the name of an error's class."""

    model_config = _MODEL
    code: str
    message: str
    remedy: str = ""


class ReplayState(BaseModel):
    """State of one replay, switch or drop of a project.

    ``stage`` is the current step, of which ``done`` of ``total`` items are done (a total of 0 is
    unknown). ``rate_per_s`` and ``seconds_left`` are of this step, or None while they are unknown.
    ``state`` is ``lost`` if the process sent no report for ``SILENT_AFTER``. ``result`` is what the
    command prints as JSON.
    """

    model_config = _MODEL
    id: str = Field(default_factory=lambda: uuid4().hex)
    project: str
    operation: Operation = "replay"
    options: dict[str, Any] = {}
    state: Phase = "running"
    stage: str = "starting"
    done: int = 0
    total: int = 0
    rate_per_s: float | None = None
    seconds_left: float | None = None
    questions: Questions = Questions()
    host: str = ""
    pid: int = 0
    began_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    reported_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    result: dict[str, Any] | None = None
    error: ReplayError | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether the replay reports nothing any more."""
        return self.state != "running"

    def lost(self, reason: str) -> ReplayState:
        """Return the state of an operation whose process ended without a report.

        ``reason``: end of the sentence "the replay of … was lost: …".
        """
        error = ReplayError(
            code="ReplayLost",
            message=f"the {self.operation} of {self.project} was lost: {reason}",
            remedy="run it again with the same options to resume it; the live index is unchanged",
        )
        return self.model_copy(update={"state": "lost", "error": error, "seconds_left": None})


class ReplayStates:
    """The states of a deployment's replays, in one hash by id; the 50 newest are kept.

    Each method raises Unavailable if Redis can't be reached, ConfigurationError if our user may not
    use the hash, and LogFull if Redis is at its memory limit.
    """

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._key = names.replays

    async def put(self, state: ReplayState) -> None:
        """Store a state with the current time of Redis as the time of its report."""
        with redis_errors():
            stamped = state.model_copy(update={"reported_at": await self._now()})
            await self._redis.hset(self._key, state.id, stamped.model_dump_json())

    async def all(self) -> list[ReplayState]:
        """Return the states, newest first."""
        with redis_errors():
            stored: Any = await self._redis.hgetall(self._key)
            now = await self._now()
        states = [_parsed(value, now) for key, value in stored.items() if not _is_stop(key)]
        present = [state for state in states if state is not None]
        return sorted(present, key=lambda state: (state.began_at, state.id), reverse=True)

    async def find(self, replay_id: str) -> ReplayState:
        """Return one state.

        Raises:
            NotFound: there is none, or it is not kept any more.
        """
        for state in await self.all():
            if state.id == replay_id:
                return state
        raise NotFound(
            f"replay {replay_id[:80]!r} does not exist", "`headrace replay status` lists replays"
        )

    async def request_stop(self, replay_id: str) -> None:
        """Request a stop, which the replay obeys at its next report."""
        with redis_errors():
            await self._redis.hset(self._key, replay_id + _STOP_SUFFIX, "1")

    async def is_stop_requested(self, replay_id: str) -> bool:
        """Return whether a stop of the replay was requested."""
        with redis_errors():
            stored: Any = await self._redis.hgetall(self._key)
        return (replay_id + _STOP_SUFFIX).encode() in stored

    async def forget(self) -> None:
        """Remove the states beyond the newest 50, and requests to stop a replay that has ended."""
        states = await self.all()
        kept = {state.id for state in states[:_KEPT]}
        running = {state.id + _STOP_SUFFIX for state in states if not state.has_ended}
        with redis_errors():
            keys: Any = await self._redis.hgetall(self._key)
            outdated = [key for key in keys if key.decode(errors="replace") not in kept | running]
            if outdated:
                await self._redis.hdel(self._key, *outdated)

    async def _now(self) -> datetime:
        seconds, microseconds = await self._redis.time()
        return datetime.fromtimestamp(int(seconds), UTC) + timedelta(microseconds=int(microseconds))


def _is_stop(key: bytes) -> bool:
    return key.endswith(_STOP_SUFFIX.encode())


def _parsed(value: bytes, now: datetime) -> ReplayState | None:
    """Parse a state; returns None if no replay of Headrace wrote it."""
    try:
        state = ReplayState.model_validate_json(value)
        is_silent = now - state.reported_at > SILENT_AFTER
    except (ValidationError, TypeError):
        return None
    return (
        state.model_copy(update={"state": "lost"}) if is_silent and not state.has_ended else state
    )
