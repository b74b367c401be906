"""Sessions of the pages. A person opens one with a ticket or an API key; a cookie continues it.

Redis keeps a session and a ticket under the SHA-256 of its random name, with the id of the API key
and the hash of its secret. So a session ends with its key, and Redis has nothing that a client
could send.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from redis.asyncio import Redis

from events.names import Names
from events.server.connection import redis_errors
from gateway.auth.callers import Caller
from gateway.auth.keys import Authenticator
from runtime.errors import Forbidden, Unauthenticated
from store.keys.api_keys import ApiKey

__all__ = ["SESSION_LIFETIME", "TICKET_LIFETIME", "Session", "Sessions"]

SESSION_LIFETIME = timedelta(hours=12)
TICKET_LIFETIME = timedelta(minutes=5)

_RANDOM_BYTES = 32
_COOKIE = re.compile(r"hrs_[A-Za-z0-9_-]{43}")
_TICKET = re.compile(r"hrt_[A-Za-z0-9_-]{43}")
_Kind = Literal["session", "ticket"]
_PREFIXES: dict[_Kind, str] = {"session": "hrs_", "ticket": "hrt_"}


@dataclass(frozen=True, slots=True)
class Session:
    """A session of a caller. ``cookie`` is its secret name; ``repr`` does not show it."""

    caller: Caller
    cookie: str = field(repr=False)

    @property
    def csrf_token(self) -> str:
        """Token of the forms of this session: a hash of the cookie, which reveals nothing of it."""
        digest = hmac.digest(self.cookie.encode(), b"csrf", "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def check_form(self, csrf_token: str) -> None:
        """Check that a form was made for this session.

        Raises:
            Forbidden: the form has no token, or that of another session.
        """
        if not hmac.compare_digest(self.csrf_token.encode(), csrf_token.encode(errors="replace")):
            raise Forbidden(
                "the form does not belong to this session", "load the page again, and repeat"
            )


class Sessions:
    """Opens, finds and ends sessions, for all gateways together.

    Methods raise Unavailable if Redis or Postgres can't be reached.
    """

    def __init__(
        self,
        redis: Redis,
        names: Names,
        authenticator: Authenticator,
        *,
        session_lifetime: timedelta = SESSION_LIFETIME,
        ticket_lifetime: timedelta = TICKET_LIFETIME,
    ) -> None:
        self._redis = redis
        self._names = names
        self._authenticator = authenticator
        self._session_lifetime = session_lifetime
        self._ticket_lifetime = ticket_lifetime

    async def issue_ticket(self, api_key: str) -> str:
        """Return a ticket, which opens one session of the key's caller within five minutes.

        Raises:
            Unauthenticated: the API key is not valid.
        """
        key = await self._checked(api_key, "")
        return await self._keep("ticket", key.id, key.digest, self._ticket_lifetime)

    async def redeem(self, ticket: str) -> Session:
        """Open a session with a ticket, which is used up by that.

        Raises:
            Unauthenticated: the ticket was used, has expired or never existed, or its API key is
                not valid any more.
        """
        record = None
        if _TICKET.fullmatch(ticket):
            with redis_errors():
                record = await self._redis.getdel(self._key("ticket", ticket))
        if record is None:
            raise Unauthenticated(
                "the link was used before, or is too old", "print another with `headrace open`"
            )
        key_id, digest = _identity(record)
        return await self._open(key_id, digest)

    async def open_session(self, api_key: str, address: str = "") -> Session:
        """Open a session with an API key; ``address`` is the IP address of the client.

        Raises:
            Unauthenticated: the API key is not valid.
            RateLimited: the API key is not valid, and too many attempts from the address have
                failed.
        """
        key = await self._checked(api_key, address)
        return await self._open(key.id, key.digest)

    async def find(self, cookie: str) -> Session:
        """Return the session with this cookie.

        Raises:
            Unauthenticated: the session was ended, has expired or never existed, or its API key is
                not valid any more.
        """
        record = None
        if _COOKIE.fullmatch(cookie):
            with redis_errors():
                record = await self._redis.get(self._key("session", cookie))
        if record is None:
            raise Unauthenticated("the session has ended", "log in again")
        return Session(await self._authenticator.admit(*_identity(record)), cookie)

    async def end(self, cookie: str) -> None:
        """End a session at once, for all gateways. Nothing happens if there is none."""
        if _COOKIE.fullmatch(cookie):
            with redis_errors():
                await self._redis.unlink(self._key("session", cookie))

    async def _checked(self, api_key: str, address: str) -> ApiKey:
        await self._authenticator.authenticate(api_key, address)
        key = ApiKey.parse(api_key)
        assert key is not None, "authenticated"
        return key

    async def _open(self, key_id: str, digest: bytes) -> Session:
        caller = await self._authenticator.admit(key_id, digest)
        return Session(caller, await self._keep("session", key_id, digest, self._session_lifetime))

    async def _keep(self, kind: _Kind, key_id: str, digest: bytes, lifetime: timedelta) -> str:
        name = _PREFIXES[kind] + secrets.token_urlsafe(_RANDOM_BYTES)
        record = json.dumps({"key_id": key_id, "digest": digest.hex()})
        with redis_errors():
            await self._redis.set(self._key(kind, name), record, px=lifetime)
        return name

    def _key(self, kind: _Kind, name: str) -> str:
        return self._names.gateway(hashlib.sha256(name.encode()).hexdigest(), kind)


def _identity(record: bytes | str) -> tuple[str, bytes]:
    fields: dict[str, Any] = json.loads(record)
    return fields["key_id"], bytes.fromhex(fields["digest"])
