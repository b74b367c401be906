"""The Faust app of every worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, MutableSequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn, Self
from urllib.parse import parse_qsl

import faust
import structlog
from faust.sensors.monitor import Monitor
from faust.tables.manager import TableManager
from faust.types.agents import AgentFun
from faust.types.channels import ChannelT
from faust.types.fixups import FixupT
from mode.services import ServiceTask

from events.server.connection import REDIS_SCHEMES
from events.transport.consumer_group import InFlightEntry
from events.transport.driver import register
from events.transport.options import Options
from events.transport.subscription import OnDead
from runtime.errors import ConfigurationError, Unavailable

__all__ = ["App", "run_app"]

log = structlog.get_logger(__name__)

_STOP_MARGIN = timedelta(seconds=12)
# A full channel would stop the delivery to every topic, so the windows bound the entries instead.
_UNBOUNDED = 1_000_000


@dataclass(frozen=True)
class InFlight:
    """Numbers of a topic's events that a worker holds, and that it is processing."""

    in_flight: int = 0
    in_work: int = 0

    @classmethod
    def of(cls, entries: Iterable[InFlightEntry]) -> Self:
        """Count the entries of a topic."""
        unsettled = [entry for entry in entries if not entry.settled]
        return cls(len(unsettled), sum(entry.begun for entry in unsettled))

    def __add__(self, other: InFlight) -> InFlight:
        return InFlight(self.in_flight + other.in_flight, self.in_work + other.in_work)


class _NoTables(TableManager):
    """Table manager that only resumes the flow, without Faust's wait of a second for tables."""

    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()


class _Monitor(Monitor):
    """Monitor without its timer: it would compute rates every second that nothing reads."""

    def _get_tasks(self) -> Iterable[ServiceTask]:
        return ()


class App(faust.App):
    """A Faust app without the parts that need Kafka's log: no tables, no leader, no web server.

    Args:
        id: name of the application, for logs; groups are by topic (``events.names.GROUPS``).
        broker: URL of Redis or of a cluster; for a bridge kafka:// URLs with ``;`` between them.
        options: options of the transport; if None, they are read from the query of the URL.
        on_dead: awaited with each letter before it is dead-lettered. If it raises, the event is
            delivered again instead. Over Kafka it must store the letter.
        topic_prefix: text before the name of each topic over Kafka.

    Raises:
        ConfigurationError: an option in the URL is unknown or invalid.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - Faust's name for it
        *,
        broker: str,
        options: Options | None = None,
        on_dead: OnDead | None = None,
        topic_prefix: str = "",
        **settings: Any,
    ) -> None:
        register()
        over_redis = broker.partition("://")[0] in REDIS_SCHEMES
        self.options = options or Options.from_query(_query(broker) if over_redis else {})
        self.redis_url = _without_query(broker) if over_redis else ""
        self.prefetch: dict[str, int] = {}
        self.on_dead = on_dead
        self.topic_prefix = topic_prefix
        super().__init__(
            id,
            broker="redis://" if over_redis else broker,
            topic_disable_leader=True,
            topic_allow_declare=False,
            web_enabled=False,
            autodiscover=False,
            consumer_auto_offset_reset="earliest",
            # over Kafka a rebalance would wait for work that an outage of Redis holds up
            stream_wait_empty=over_redis,
            stream_buffer_maxsize=_UNBOUNDED if over_redis else self.options.max_inflight,
            TableManager=_NoTables,
            Monitor=_Monitor,
            **settings,
        )

    @property
    def over_redis(self) -> bool:
        """Return whether single messages can be acknowledged and handed back."""
        return bool(self.redis_url)

    def in_flight(self) -> dict[str, InFlight]:
        """Count the in-flight events by topic; empty over Kafka, where they are unknown."""
        counts: dict[str, InFlight] = {}
        for tp, subscription in getattr(self.consumer, "subscriptions", {}).items():
            former = counts.get(tp.topic, InFlight())
            counts[tp.topic] = former + InFlight.of(subscription.in_flight.values())
        return counts

    def counts(self) -> dict[str, int]:
        """Return the transport's counts since the start; empty over Kafka."""
        statistics = getattr(self.consumer, "statistics", None)
        return {} if statistics is None else dict(vars(statistics))

    def add_agent(self, name: str, channel: ChannelT[Any], pump: AgentFun[Any]) -> None:
        """Add an agent without preparing it for Faust's search of modules.

        ``agent`` does that, although ``autodiscover`` is off, and inspects every loaded module for
        it. That was half of the processor time of a worker's start.
        """
        self.agents[name] = self.conf.Agent(
            pump, name=name, app=self, channel=channel, on_error=self._on_agent_error
        )

    def Table(self, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: N802 - Faust's name for it
        """Refuse to create a table: it needs a changelog that can be read from any offset.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError("tables don't work over Redis Streams", "keep state in Postgres")

    GlobalTable = SetTable = SetGlobalTable = Table

    def _create_directories(self) -> None:
        """Create nothing: Faust's directories are for tables."""

    def _init_fixups(self) -> MutableSequence[FixupT]:
        """Return no adaptations to web frameworks, whose search reads the data of every package."""
        return []


def _without_query(url: str) -> str:
    return url.partition("?")[0]


def _query(url: str) -> dict[str, str]:
    return dict(parse_qsl(url.partition("?")[2]))


async def run_app(app: App, stop: asyncio.Event, ready: Callable[[], None] | None = None) -> None:
    """Run an app in this event loop until ``stop`` is set, then end it in bounded time.

    ``ready`` is called once agents receive events.

    Started work gets ``shutdown_timeout`` to finish. After that, unfinished and unstarted entries
    are given back, to be taken over at once.

    Raises:
        Unavailable: a part of the app failed permanently.
    """
    ends = [asyncio.create_task(event.wait()) for event in (stop, app._crashed)]
    try:
        await app.start()
        if ready is not None and not app.should_stop:
            ready()
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()
        await _stop(app)
    if app.crash_reason is not None:
        raise Unavailable(f"the worker failed: {app.crash_reason}") from app.crash_reason


async def _stop(app: App) -> None:
    limit = app.options.shutdown_timeout + _STOP_MARGIN
    try:
        async with asyncio.timeout(limit.total_seconds()):
            await app.stop()
    except TimeoutError:
        log.exception("worker.stop_timed_out", seconds=limit.total_seconds())
