"""Webhooks of GitHub, GitLab, Gitea and Forgejo, which ask for a sync of a repository.

A delivery is only a hint: its signature is checked over the raw body, which is never parsed, and
the repository that is fetched is that of the settings. So a delivery that is repeated or delayed
leads at most to a sync that publishes nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from redis.asyncio import Redis

from events.names import Names
from events.server.connection import redis_errors
from gateway.auth.rates import Rates
from runtime.errors import Unauthenticated
from runtime.settings import HookSettings

if TYPE_CHECKING:
    from gateway.sync.hook_syncs import HookSyncs

__all__ = ["DELIVERY_AGE", "REMEMBERED", "Hooks", "hook_routes"]

DELIVERY_AGE = timedelta(minutes=5)
"""Longest time between the time stamp of a delivery and its arrival."""
REMEMBERED = timedelta(days=1)
"""Time for which the ids of deliveries are remembered after their syncs."""

_EVENTS = frozenset({"push", "create", "delete", "push hook", "tag push hook", "system hook"})
_NO_SECRET = "-" * 32
_SIGNING_SECRET = "whsec_"  # noqa: S105 - the prefix of secrets


@dataclass(frozen=True, slots=True)
class _Host:
    """Headers of a kind of host.

    Attributes:
        signature: header of the signature. The first host whose header is there decides.
        delivery: header of the id of the delivery; some versions of a host use the second one.
        event: header of the kind of event; without it, every event counts.
        prefix: text before the signature, which is in hexadecimal.
    """

    signature: str
    delivery: tuple[str, ...]
    event: str
    prefix: str = ""


_STAMPED = _Host("webhook-signature", ("webhook-id",), "x-gitlab-event", "v1,")
_TOKEN = _Host("x-gitlab-token", ("idempotency-key", "x-gitlab-event-uuid"), "x-gitlab-event")
_HOSTS = (
    _Host("x-forgejo-signature", ("x-forgejo-delivery",), "x-forgejo-event"),
    _Host("x-gitea-signature", ("x-gitea-delivery",), "x-gitea-event"),
    _Host("x-hub-signature-256", ("x-github-delivery",), "x-github-event", "sha256="),
    _STAMPED,
    _TOKEN,
)
"""Hosts in the order in which they count: Forgejo sends the headers of the next two as well."""


class Hooks:
    """Webhooks of the settings.

    Args:
        hooks: settings of each hook, by its name.
        syncs: syncs that deliveries ask for.
        rates: limits of deliveries, and of those without a valid signature.
        redis: Redis, which remembers deliveries for all gateways.
        names: names of its keys.
    """

    def __init__(
        self,
        hooks: Mapping[str, HookSettings],
        syncs: HookSyncs,
        rates: Rates,
        redis: Redis,
        names: Names,
    ) -> None:
        self._hooks = hooks
        self._syncs = syncs
        self._rates = rates
        self._redis = redis
        self._names = names

    async def receive(self, name: str, request: Request) -> bool:
        """Check a delivery and ask for a sync; returns False if it has no effect.

        It has none if a sync has ended for it already, or if its event changes no branch or tag.

        Raises:
            Unauthenticated: there is no such hook, or the signature is not valid, or it is too old.
            RateLimited: there were too many deliveries, or too many without a valid signature.
            Unavailable: Redis can't be reached.
        """
        headers = request.headers
        host = next((host for host in _HOSTS if host.signature in headers), None)
        if host is None or not await self._is_signed(name, host, request) or _is_stale(request):
            # checked only now: hooks of strangers come from the same addresses of a host
            address = request.client.host if request.client else ""
            await self._rates.check_failures(address)
            await self._rates.record_failure(address)
            raise Unauthenticated(
                "the delivery has no valid signature, or is too old",
                "compare the secret and the name of the hook with HEADRACE_GATEWAY",
            )
        await self._rates.spend_delivery(name)
        event = headers.get(host.event, "push").lower()
        if event not in _EVENTS:
            return False
        key = self._key(name, host, headers)
        if key is None:
            self._syncs.ask(name)
            return True
        with redis_errors():
            is_done = bool(await self._redis.exists(key))
        if not is_done:
            self._syncs.ask(name, partial(self._remember, key))
        return not is_done

    async def _is_signed(self, name: str, host: _Host, request: Request) -> bool:
        """Check the signature over the body while it is received; an unknown hook takes as long."""
        hook = self._hooks.get(name)
        secret = _NO_SECRET if hook is None else hook.secret.get_secret_value()
        digest = hmac.new(_key_of(secret, host), digestmod=hashlib.sha256)
        if host is _STAMPED:
            stamp = [request.headers.get(name, "") for name in ("webhook-id", "webhook-timestamp")]
            digest.update(f"{stamp[0]}.{stamp[1]}.".encode(errors="replace"))
        async for part in request.stream():
            digest.update(part)
        given = request.headers[host.signature].encode(errors="replace")
        if host is _TOKEN:
            return hmac.compare_digest(given, secret.encode()) and hook is not None
        raw = digest.digest()
        right = base64.b64encode(raw) if host is _STAMPED else raw.hex().encode()
        right = host.prefix.encode() + right
        signatures = given.split() if host is _STAMPED else [given]
        return any(hmac.compare_digest(text, right) for text in signatures) and hook is not None

    def _key(self, name: str, host: _Host, headers: Mapping[str, str]) -> str | None:
        """Redis key of a delivery; None if it has no id."""
        delivery = next((headers[header] for header in host.delivery if header in headers), None)
        if delivery is None:
            return None
        identity = hashlib.sha256(f"{name}\0{delivery}".encode(errors="replace")).hexdigest()
        return self._names.gateway(identity, "delivery")

    async def _remember(self, key: str) -> None:
        """Remember a delivery whose sync has ended: one that failed or was killed may be repeated.

        Raises:
            HeadraceError: Redis can't be reached, is full, or denies it.
        """
        with redis_errors():
            await self._redis.set(key, "1", ex=REMEMBERED)


def hook_routes(hooks: Hooks) -> APIRouter:
    """Build the route to which hosts deliver."""
    router = APIRouter()

    @router.post("/hooks/{name}", include_in_schema=False)
    async def receive(name: str, request: Request) -> JSONResponse:
        """Receive a delivery of a webhook."""
        is_accepted = await hooks.receive(name, request)
        status = "accepted" if is_accepted else "ignored"
        return JSONResponse({"status": status}, 202 if is_accepted else 200)

    return router


def _key_of(secret: str, host: _Host) -> bytes:
    """Key of a secret; the signing secrets of GitLab are base64 after a prefix."""
    if host is _STAMPED and secret.startswith(_SIGNING_SECRET):
        try:
            return base64.b64decode(secret.removeprefix(_SIGNING_SECRET), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def _is_stale(request: Request) -> bool:
    """True if a delivery has a time stamp that is too far from now."""
    stamp = request.headers.get("webhook-timestamp")
    if stamp is None:
        return False
    if not (stamp.isascii() and stamp.isdigit()):
        return True
    return abs(time.time() - int(stamp[:15])) > DELIVERY_AGE.total_seconds()
