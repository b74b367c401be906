"""Rate limits of callers and of failed authentication, shared by all gateways through Redis."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from redis.asyncio import Redis

from events.names import Names
from events.server.connection import redis_errors
from events.server.scripts import SpendAllowance
from gateway.auth.callers import Caller
from runtime.errors import RateLimited

__all__ = [
    "BYTES_PER_MINUTE",
    "DELIVERIES_PER_MINUTE",
    "FAILURES_PER_MINUTE",
    "REQUESTS_PER_MINUTE",
    "Allowance",
    "Rates",
    "rate_headers",
]

REQUESTS_PER_MINUTE = 6_000
"""Usual limit of an API key."""
BYTES_PER_MINUTE = 268_435_456
"""Usual limit of an API key, in bytes of published content."""
DELIVERIES_PER_MINUTE = 60
"""Deliveries of one webhook."""
FAILURES_PER_MINUTE = 20
"""Failed authentications from one address."""

_NETWORK_BITS = 64
"""An IPv6 address is limited with its network: one machine usually has all addresses of it."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Rest of a limit per minute. ``limit`` 0 means none; ``reset``: time until all is restored."""

    unit: Literal["requests", "bytes"]
    limit: int
    remaining: int = 0
    reset: timedelta = timedelta()


def rate_headers(*allowances: Allowance) -> dict[str, str]:
    """Return the headers ``RateLimit-Policy`` and ``RateLimit``; empty if there is no limit."""
    limited = [allowance for allowance in allowances if allowance.limit]
    if not limited:
        return {}
    policies = (f'"{allowance.unit}";q={allowance.limit};w=60' for allowance in limited)
    rests = (
        f'"{allowance.unit}";r={allowance.remaining};t={math.ceil(allowance.reset.total_seconds())}'
        for allowance in limited
    )
    return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(rests)}


class Rates:
    """Token buckets, each of which holds a minute's worth and is refilled evenly.

    Args:
        redis: Redis, which all gateways share.
        names: names of the keys.
        requests_per_minute: limit of an API key without its own; 0 means none.
        bytes_per_minute: limit of an API key without its own; 0 means none.
    """

    def __init__(
        self,
        redis: Redis,
        names: Names,
        *,
        requests_per_minute: int = REQUESTS_PER_MINUTE,
        bytes_per_minute: int = BYTES_PER_MINUTE,
    ) -> None:
        self._names = names
        self._requests_per_minute = requests_per_minute
        self._bytes_per_minute = bytes_per_minute
        self._spend = SpendAllowance(redis)

    async def spend_request(self, caller: Caller) -> Allowance:
        """Count a request of a caller.

        Raises:
            RateLimited: the requests of the key are used up, until ``retry_after``.
            Unavailable: Redis can't be reached.
        """
        limit = caller.requests_per_minute
        limit = self._requests_per_minute if limit is None else limit
        return await self._allowance(caller, "requests", 1, limit)

    async def spend_bytes(self, caller: Caller, size_bytes: int) -> Allowance:
        """Count bytes that a caller publishes.

        More bytes than the limit pass if none were published in the last minute; then the following
        minutes pay for them.

        Raises:
            RateLimited: the bytes of the key are used up, until ``retry_after``.
            Unavailable: Redis can't be reached.
        """
        limit = caller.bytes_per_minute
        limit = self._bytes_per_minute if limit is None else limit
        return await self._allowance(caller, "bytes", size_bytes, limit)

    async def _allowance(
        self, caller: Caller, unit: Literal["requests", "bytes"], units: int, limit: int
    ) -> Allowance:
        if not limit:
            return Allowance(unit, 0)
        key = self._names.gateway(caller.key_id, unit)
        with redis_errors():
            wait, remaining, reset = await self._spend(key, units, limit, "spend")
        if wait:
            raise RateLimited(
                f"the API key {caller.key_id} has used up its {limit:,} {unit} per minute",
                "wait, or ask an operator for a key with a higher limit",
                retry_after=wait,
            )
        return Allowance(unit, limit, remaining, reset)

    async def spend_delivery(self, hook: str) -> None:
        """Count a delivery of a webhook.

        Raises:
            RateLimited: its deliveries are used up, until ``retry_after``.
            Unavailable: Redis can't be reached.
        """
        key = self._names.gateway(f"hook.{hook}", "requests")
        with redis_errors():
            wait, _, _ = await self._spend(key, 1, DELIVERIES_PER_MINUTE, "spend")
        if wait:
            raise RateLimited(
                f"the hook {hook} had more than {DELIVERIES_PER_MINUTE} deliveries in a minute",
                "deliver it later",
                retry_after=wait,
            )

    async def check_failures(self, address: str) -> None:
        """Check that an attempt of an address to authenticate may fail.

        Raises:
            RateLimited: too many attempts from it have failed, until ``retry_after``.
            Unavailable: Redis can't be reached.
        """
        key = self._names.gateway(_origin(address), "failures")
        with redis_errors():
            wait, _, _ = await self._spend(key, 1, FAILURES_PER_MINUTE, "check")
        if wait:
            raise RateLimited(
                f"more than {FAILURES_PER_MINUTE} requests per minute from this address had no "
                "valid API key",
                "correct the key, and wait",
                retry_after=wait,
            )

    async def record_failure(self, address: str) -> None:
        """Count a failed authentication of an address.

        Raises:
            Unavailable: Redis can't be reached.
        """
        key = self._names.gateway(_origin(address), "failures")
        with redis_errors():
            await self._spend(key, 1, FAILURES_PER_MINUTE, "charge")


def _origin(address: str) -> str:
    """Return the address, or its network, in one spelling; 'unknown' if it is not an IP address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _NETWORK_BITS), strict=False))
