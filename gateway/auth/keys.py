"""Authentication of callers by their API keys."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import Final

from gateway.auth.callers import Caller, Right
from gateway.auth.rates import Rates
from runtime.errors import RateLimited, Unauthenticated
from runtime.intervals import TTLCache
from store.keys.api_keys import ApiKey, ApiKeys

__all__ = ["REMEMBERED_SECONDS", "Authenticator"]

REMEMBERED_SECONDS: Final = 5.0
"""Longest time for which a gateway accepts a key that was retired or has expired."""


class Authenticator:
    """Finds the caller that an API key belongs to.

    A valid key is remembered for ``REMEMBERED_SECONDS``. An invalid one is looked up each time, so
    that a new key works at once. ``rates`` limits such attempts by address: over the limit they are
    refused as RateLimited, and the keys of such addresses are looked up one after another, so that
    they leave the database to others. A valid key passes in any case.
    """

    def __init__(self, api_keys: ApiKeys, rates: Rates) -> None:
        self._api_keys = api_keys
        self._rates = rates
        self._turn = asyncio.Lock()
        self._callers: TTLCache[tuple[str, bytes], Caller] = TTLCache(REMEMBERED_SECONDS)

    async def authenticate(self, token: str, address: str = "") -> Caller:
        """Return the caller whose API key is ``token``.

        ``address`` is the IP address of the client. Without it, failed attempts are not limited.

        Raises:
            Unauthenticated: the text is not an API key, or the key does not exist, is retired or
                has expired. The message is the same for all of these.
            RateLimited: the key is not valid, and too many attempts from the address have failed.
            Unavailable: Redis or Postgres can't be reached.
        """
        key = ApiKey.parse(token)
        if key is None:
            raise _unauthenticated()
        return await self.admit(key.id, key.digest, address)

    async def admit(self, key_id: str, digest: bytes, address: str = "") -> Caller:
        """Return the caller with this key id and SHA-256 of the secret; see ``authenticate``."""
        caller = self._callers.get((key_id, digest))
        if caller is not None:
            return caller
        limited = await self._limited(address) if address else None
        async with nullcontext() if limited is None else self._turn:
            read_at = time.monotonic()
            admitted = await self._api_keys.admit(key_id, digest)
        if admitted is None:
            if limited is not None:
                raise limited
            if address:
                await self._rates.record_failure(address)
            raise _unauthenticated()
        caller = Caller(
            key_id=key_id,
            project=admitted.project,
            agent=admitted.agent,
            rights=frozenset(right for right in Right if right.value in admitted.rights),
            requests_per_minute=admitted.requests_per_minute,
            bytes_per_minute=admitted.bytes_per_minute,
        )
        self._callers.put((key_id, digest), caller, at=read_at)
        return caller

    async def _limited(self, address: str) -> RateLimited | None:
        """Return the refusal of failed attempts from an address. Returns None if it may fail."""
        try:
            await self._rates.check_failures(address)
        except RateLimited as error:
            return error
        return None


def _unauthenticated() -> Unauthenticated:
    return Unauthenticated(
        "there is no valid API key: it is missing, does not exist, is retired or has expired",
        "send one as `Authorization: Bearer hr_…` (`headrace api-keys add` creates one)",
    )
