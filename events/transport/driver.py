"""The transport that Faust finds by the scheme of the broker URL."""

from __future__ import annotations

import asyncio
from typing import Any

from faust.transport import base
from faust.transport.drivers import TRANSPORTS
from yarl import URL

from events.server.connection import REDIS_SCHEMES
from events.transport.consumer import Consumer
from events.transport.options import Options
from events.transport.producer import Producer
from events.transport.subscription import OnDead

__all__ = ["Conductor", "Transport", "register"]


class Conductor(base.Conductor):
    """Subscribes to added topics at once, because there is no rebalance to wait for."""

    _resubscribe_sleep_lock_seconds = 0.05


class Transport(base.Transport):
    """Redis Streams under Faust.

    ``redis_url`` and ``options`` come from the broker URL, unless ``events.transport.App`` sets
    them. ``prefetch`` bounds in-flight entries by topic. ``on_dead`` is awaited before an entry is
    dead-lettered; if it raises, the entry stays.
    """

    Consumer = Consumer
    Producer = Producer
    Conductor = Conductor
    default_port = 6379
    driver_version = "headrace"

    def __init__(
        self, url: list[URL], app: Any, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        super().__init__(url, app, loop)
        broker = url[0]
        self.redis_url: str = getattr(app, "redis_url", None) or str(broker.with_query(None))
        self.options: Options = getattr(app, "options", None) or Options.from_query(broker.query)
        self.prefetch: dict[str, int] = getattr(app, "prefetch", {})
        self.on_dead: OnDead | None = getattr(app, "on_dead", None)


def register() -> None:
    """Register the URLs of Redis with Faust in case the package's metadata is not installed."""
    for scheme in REDIS_SCHEMES:
        TRANSPORTS.aliases[scheme] = "events.transport:Transport"
