"""Renewal of the leases of in-flight entries, however long the work takes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import structlog
from faust.types import TP
from redis.exceptions import RedisError

from events.transport.subscription import Subscription

__all__ = ["keep_leases"]

log = structlog.get_logger(__name__)


async def keep_leases(subscriptions: Mapping[TP, Subscription], lease: timedelta) -> None:
    """Renew the leases for ever, every third of their duration.

    Entries that another consumer has taken over (because this process was stopped, or its loop
    stalled) are marked lost: an entry is dropped if work on it has not begun, and its outcome is
    ignored if it has. The fence in the store covers the rest.
    """
    while True:
        await asyncio.sleep(lease.total_seconds() / 3)
        for subscription in list(subscriptions.values()):
            await _renew(subscription)


async def _renew(subscription: Subscription) -> None:
    held = list(subscription.held)
    if not held:
        return
    try:
        ours = await subscription.group.renew(held)
    except (RedisError, OSError) as error:
        log.warning("lease.renewal_failed", stream=subscription.group.stream, error=str(error))
        return
    newer = subscription.held.keys() - set(held)
    if lost := subscription.mark_lost(ours | newer):
        log.warning("lease.lost", stream=subscription.group.stream, entries=len(lost))
