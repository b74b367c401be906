"""Roll of the consumers of a topic: it shows which streams may have overdue entries.

To search every stream at every interval would cost more commands with every partition. An entry
becomes overdue for one of two reasons: its consumer fell silent, or handed it back. A consumer
remembers what it handed back. To notice the silent ones, all consumers of a topic sign on one roll,
the group of its first stream, at every claim interval, and look who else did. Redis has the time of
each.

A consumer signs before it reads if its last signature is older than the interval, and leaves the
roll only after it has nothing pending. So each consumer with a pending entry is on the roll.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from time import monotonic

from events.transport.consumer_group import Group, consumers_of, sign
from events.transport.options import Options
from events.transport.subscription import Subscription

__all__ = ["Roll"]

_SEARCH_ALL_EVERY = timedelta(minutes=5)
"""Entries that a person or program has read by another way become overdue unnoticed."""


class Roll:
    """Decides which streams of a topic are searched for overdue entries."""

    def __init__(self, options: Options) -> None:
        silent_after = max(options.lease / 2, options.claim_interval * 1.5 + options.block)
        self._silent_ms = int(silent_after.total_seconds() * 1000)
        self._cleared: dict[str, int] = {}
        self._next_search_of_all = 0.0

    async def suspects(self, subscriptions: Sequence[Subscription]) -> list[Subscription]:
        """Sign the roll; return the streams that may have overdue entries.

        Raises:
            RedisError: Redis can't be reached.
        """
        if len(subscriptions) == 1:
            return list(subscriptions)
        now = monotonic()
        returned = [entry for entry in subscriptions if entry.takes_due_returns(now)]
        if now >= self._next_search_of_all:
            await sign(subscriptions[0].group)
            self._next_search_of_all = now + _SEARCH_ALL_EVERY.total_seconds()
            return list(subscriptions)
        silent = await self._silent(subscriptions[0].group)
        if not silent:
            return returned
        pending = await consumers_of([entry.group for entry in subscriptions])
        self._clear(silent, pending)
        searched = [entry for entry in subscriptions if pending[entry.group]]
        return searched + [entry for entry in returned if entry not in searched]

    async def _silent(self, group: Group) -> Mapping[str, int]:
        """Return the idle time (ms) of silent consumers that may have pending entries, by name."""
        rows = await sign(group)
        silent = {name: idle for name, idle in rows.items() if idle >= self._silent_ms}
        # a shorter idle time is that of a consumer that has signed since
        self._cleared = {
            name: silent[name]
            for name, idle in self._cleared.items()
            if silent.get(name, -1) >= idle
        }
        return {name: idle for name, idle in silent.items() if name not in self._cleared}

    def _clear(self, silent: Mapping[str, int], pending: Mapping[Group, set[str]]) -> None:
        """Note the silent consumers without pending entries; they are noticed if they sign."""
        holders = set[str]().union(*pending.values())
        self._cleared |= {name: idle for name, idle in silent.items() if name not in holders}
