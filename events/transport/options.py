"""How the transport behaves: fields of one object, or query options of the broker URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Self

from events.connection import LONGEST_BLOCK
from events.names import Names
from runtime.errors import ConfigurationError

__all__ = ["Options"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of one consumer.

    As query options durations are seconds: ``redis://host/0?prefix=kb&partitions=4&lease=6``.
    """

    prefix: str = Names.prefix
    partitions: int = Names.partitions
    #: Name in the consumer groups; empty: one that no other process has.
    consumer: str = ""
    #: A pending entry whose consumer was silent this long is taken over.
    lease: timedelta = timedelta(seconds=6)
    #: How often to look for such entries.
    claim_interval: timedelta = timedelta(seconds=2)
    #: Attempts at an event before it goes to the dead letters.
    max_deliveries: int = 5
    #: Wait before a failed event is tried again.
    retry_delay: timedelta = timedelta(seconds=1)
    #: Entries of a topic that may be in hand at once, where its agent names no number.
    max_inflight: int = 256
    #: Longest wait of one read; also how long a stop may wait for it.
    block: timedelta = timedelta(milliseconds=250)
    #: Acknowledgements of this span travel together.
    ack_linger: timedelta = timedelta(milliseconds=5)
    #: Longest wait for work in hand at shutdown.
    shutdown_timeout: timedelta = timedelta(seconds=20)
    #: A consumer that is silent this long and owes nothing is forgotten.
    forget_consumers_after: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if not timedelta() < self.block <= LONGEST_BLOCK:
            raise ConfigurationError(f"block must be above 0 and at most {LONGEST_BLOCK}")
        if self.block * 3 > self.lease:
            raise ConfigurationError("lease must be at least three times block")
        if self.max_inflight < 1 or self.max_deliveries < 1 or self.partitions < 1:
            raise ConfigurationError("max_inflight, max_deliveries and partitions start at 1")

    @property
    def names(self) -> Names:
        """Builder of the keys."""
        return Names(self.prefix, self.partitions)

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Self:
        """Read the query options of a broker URL.

        Raises:
            ConfigurationError: an unknown option, or a value that doesn't fit.
        """
        known = {field.name: field.default for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in query.items():
            if name not in known:
                raise ConfigurationError(
                    f"unknown option {name!r} in the broker URL; known: {', '.join(known)}"
                )
            values[name] = _parse(name, text, known[name])
        return cls(**values)


def _parse(name: str, text: str, default: object) -> object:
    try:
        if isinstance(default, timedelta):
            return timedelta(seconds=float(text))
        return int(text) if isinstance(default, int) else text
    except ValueError:
        raise ConfigurationError(
            f"option {name} of the broker URL is no number: {text!r}"
        ) from None
