"""Transports: they send calls and drive flows, blocking or in an event loop."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import httpx2

from headrace_client.address import Address
from headrace_client.calls import Call
from headrace_client.errors import HeadraceError
from headrace_client.exchange import Exchange, Patience
from headrace_client.flows import Flow, Item, Pause

__all__ = ["AsyncTransport", "BlockingTransport"]

Result = TypeVar("Result")


class BlockingTransport:
    """Sends calls over a pool of connections; safe to use from many threads."""

    def __init__(self, address: Address, patience: Patience, tls: ssl.SSLContext | None) -> None:
        self._patience = patience
        self._http = httpx2.Client(**_options(address, tls))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: Call[Result]) -> Result:
        """Send a call until it succeeds, can't succeed, or its deadline has come.

        Raises:
            HeadraceError: the error of the last attempt.
        """
        exchange = Exchange(call, self._patience)
        for attempt in exchange.attempts():
            with attempt:
                try:
                    response = self._http.request(**exchange.request())
                except httpx2.RequestError as error:
                    raise exchange.unreachable(error) from error
                return exchange.result(response)
        raise AssertionError("the last attempt returns or raises")

    def items(self, flow: Flow[Result]) -> Iterator[Result]:
        """Yield the items of a flow; raises what its calls raise."""
        advance: Callable[[], Any] = partial(next, flow)
        try:
            while True:
                step = advance()
                match step:
                    case Item():
                        yield step.value
                        advance = partial(next, flow)
                    case Pause():
                        time.sleep(step.seconds)
                        advance = partial(next, flow)
                    case _:
                        try:
                            advance = partial(flow.send, self.send(step))
                        except HeadraceError as error:
                            advance = partial(flow.throw, error)
        except StopIteration:
            return
        finally:
            flow.close()


class AsyncTransport:
    """Sends calls over a pool of connections of one event loop."""

    def __init__(self, address: Address, patience: Patience, tls: ssl.SSLContext | None) -> None:
        self._patience = patience
        self._http = httpx2.AsyncClient(**_options(address, tls))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, call: Call[Result]) -> Result:
        """Send a call until it succeeds, can't succeed, or its deadline has come.

        Raises:
            HeadraceError: the error of the last attempt.
        """
        exchange = Exchange(call, self._patience)
        async for attempt in exchange.attempts():
            with attempt:
                try:
                    response = await self._http.request(**exchange.request())
                except httpx2.RequestError as error:
                    raise exchange.unreachable(error) from error
                return exchange.result(response)
        raise AssertionError("the last attempt returns or raises")

    async def items(self, flow: Flow[Result]) -> AsyncIterator[Result]:
        """Yield the items of a flow; raises what its calls raise."""
        advance: Callable[[], Any] = partial(next, flow)
        try:
            while True:
                step = advance()
                match step:
                    case Item():
                        yield step.value
                        advance = partial(next, flow)
                    case Pause():
                        await asyncio.sleep(step.seconds)
                        advance = partial(next, flow)
                    case _:
                        try:
                            advance = partial(flow.send, await self.send(step))
                        except HeadraceError as error:
                            advance = partial(flow.throw, error)
        except StopIteration:
            return
        finally:
            flow.close()


def _options(address: Address, tls: ssl.SSLContext | None) -> dict[str, Any]:
    return {
        "base_url": address.url,
        "headers": {"Authorization": f"Bearer {address.api_key}"},
        "verify": tls or True,
        # a proxy of the environment must not receive the key of a gateway on this machine
        "trust_env": not address.is_local,
    }
