"""Options of the transport: fields of one object, or query options of the broker URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Self

from events.names import Names
from events.server.connection import LONGEST_BLOCK
from runtime.errors import ConfigurationError

__all__ = ["Options"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of one consumer.

    As query options, durations are seconds: ``redis://host/0?prefix=kb&partitions=4&lease=6``.
    """

    prefix: str = Names.prefix
    partitions: int = Names.partitions
    #: Name in the consumer groups; if empty, a unique one is generated.
    consumer: str = ""
    #: A pending entry is taken over after its consumer was silent for this long.
    lease: timedelta = timedelta(seconds=6)
    #: Interval between searches for such entries; it is a lease while a group has nothing pending.
    claim_interval: timedelta = timedelta(seconds=2)
    #: Attempts at an event before it is dead-lettered.
    max_deliveries: int = 5
    #: Delay before a failed event is retried.
    retry_delay: timedelta = timedelta(seconds=1)
    #: Most in-flight entries of a topic whose agent sets no limit.
    max_inflight: int = 256
    #: Longest wait of one read. It is longer on an idle stream; a stop ends it, if Redis permits.
    block: timedelta = timedelta(milliseconds=250)
    #: Acknowledgements of this time span are sent together.
    ack_linger: timedelta = timedelta(milliseconds=5)
    #: Longest wait for in-flight work at shutdown.
    shutdown_timeout: timedelta = timedelta(seconds=20)
    #: A consumer that is silent for this long and has no pending entries is removed.
    forget_consumers_after: timedelta = timedelta(hours=1)
    #: Names that are shared with other parts of the process; by default, of prefix and partitions.
    shared_names: Names | None = None

    def __post_init__(self) -> None:
        if not timedelta() < self.block <= LONGEST_BLOCK:
            raise ConfigurationError(f"block must be above 0 and at most {LONGEST_BLOCK}")
        if self.block * 3 > self.lease:
            raise ConfigurationError("lease must be at least three times block")
        if self.max_inflight < 1 or self.max_deliveries < 1 or self.partitions < 1:
            raise ConfigurationError(
                "max_inflight, max_deliveries and partitions must be at least 1"
            )

    @property
    def names(self) -> Names:
        """Names of the keys of this deployment."""
        return self.shared_names or Names(self.prefix, self.partitions)

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Self:
        """Read the query options of a broker URL.

        Raises:
            ConfigurationError: an option is unknown, or its value is invalid.
        """
        defaults = {
            field.name: field.default for field in fields(cls) if field.name != "shared_names"
        }
        values: dict[str, Any] = {}
        for name, text in query.items():
            if name not in defaults:
                raise ConfigurationError(
                    f"unknown option {name!r} in the broker URL",
                    f"use one of {', '.join(defaults)}",
                )
            values[name] = _parse(name, text, defaults[name])
        return cls(**values)


def _parse(name: str, text: str, default: object) -> object:
    try:
        if isinstance(default, timedelta):
            return timedelta(seconds=float(text))
        return int(text) if isinstance(default, int) else text
    except ValueError:
        raise ConfigurationError(
            f"option {name} of the broker URL is not a number: {text!r}"
        ) from None
