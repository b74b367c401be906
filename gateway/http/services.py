"""Parts that the routes share, and the caller of a request."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from events.client.feed import OutcomeFeed
from gateway.auth.callers import Caller
from gateway.auth.keys import Authenticator
from gateway.auth.rates import Rates, rate_headers
from gateway.auth.sessions import Sessions
from gateway.http.hooks import Hooks
from gateway.knowledge import Knowledge
from gateway.operations.operations import Operations
from gateway.telemetry import DeploymentMetrics
from runtime.settings import Settings
from store.views.batches import Batches

__all__ = [
    "ANY_NAME",
    "CallerOf",
    "KeyedRoute",
    "Services",
    "ServicesOf",
    "caller",
    "wait_of",
]

ANY_NAME = "NAME"
"""End of a query parameter, such as ``meta.NAME``, that stands for any name after its prefix."""

_CALLER = "headrace.caller"
_LONGEST_WAIT = timedelta(seconds=30)
_WAIT = re.compile(r"\bwait=(\d{1,4})\b")


@dataclass(frozen=True)
class Services:
    """Parts of one gateway process.

    ``missing_servers`` names the servers that do not respond. ``operations`` is None in a process
    without the operator's credentials, and ``hooks`` without webhooks.
    """

    settings: Settings
    knowledge: Knowledge
    authenticator: Authenticator
    sessions: Sessions
    rates: Rates
    batches: Batches
    feed: OutcomeFeed
    deployment: DeploymentMetrics
    missing_servers: Callable[[], Awaitable[list[str]]]
    operations: Operations | None = None
    hooks: Hooks | None = None


async def services(request: Request) -> Services:  # an async one runs in no thread
    """Return the parts of the process that handles the request."""
    shared: Services = request.app.state.services
    return shared


async def caller(request: Request) -> Caller:
    """Return the caller by the API key of the request, and count the request once.

    Raises:
        Unauthenticated: the request has no key, or the key is not valid.
        RateLimited: the requests of the key are used up; or the key is not valid, and too many
            attempts have failed.
    """
    checked: Caller | None = request.scope.get(_CALLER)
    if checked is not None:
        return checked
    scheme, key = request.headers.get("authorization", "").partition(" ")[::2]
    address = request.client.host if request.client else ""
    shared: Services = request.app.state.services
    holder = await shared.authenticator.authenticate(
        key.strip() if scheme.lower() == "bearer" else "", address
    )
    request.scope[_CALLER] = holder
    request.scope["headrace.key_id"] = holder.key_id
    request.scope["headrace.headers"] = rate_headers(await shared.rates.spend_request(holder))
    return holder


def wait_of(prefer: str | None) -> timedelta | None:
    """Return the time that a header ``Prefer: wait=N`` asks to wait, at most 30 seconds."""
    wanted = _WAIT.search(prefer or "")
    return min(timedelta(seconds=int(wanted[1])), _LONGEST_WAIT) if wanted else None


class KeyedRoute(APIRoute):
    """A route that checks the API key before it reads the body of a request.

    FastAPI reads and parses the body before it resolves dependencies, such as ``caller``.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests."""
        handle = super().get_route_handler()
        if not _has_caller(self.dependant):
            return handle

        async def check_and_handle(request: Request) -> Response:
            await caller(request)
            return await handle(request)

        return check_and_handle


def _has_caller(dependant: Dependant) -> bool:
    return dependant.call is caller or any(map(_has_caller, dependant.dependencies))


CallerOf = Annotated[Caller, Depends(caller)]
ServicesOf = Annotated[Services, Depends(services)]
