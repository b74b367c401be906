"""Transports: they send calls and drive flows, blocking or in an event loop."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing, closing
from functools import partial
from typing import Any, TypeVar

import httpx2

from headrace_client.address import Address
from headrace_client.calls import Call
from headrace_client.errors import HeadraceError
from headrace_client.exchange import Exchange, Patience
from headrace_client.flows import Flow, Item, Pause
from headrace_client.subscription import Subscription

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

    def receive(self, subscription: Subscription) -> Generator[None]:
        """Receive into a subscription without end, over new connections if some are lost.

        It yields after each part, so that the caller can take what has come.

        Raises:
            HeadraceError: the stream is refused, or can't be opened before the deadline.
        """
        while True:
            exchange = Exchange(subscription.call(), self._patience)
            with closing(self._open(exchange)) as response:
                reason = "the gateway ended it"
                try:
                    for content in response.iter_bytes():
                        subscription.receive(content)
                        yield
                except httpx2.RequestError as error:
                    reason = str(exchange.unreachable(error))
            subscription.lose(self._patience.deadline, reason)
            time.sleep(subscription.pause_s)

    def _open(self, exchange: Exchange[httpx2.Response]) -> httpx2.Response:
        for attempt in exchange.attempts():
            with attempt:
                request = self._http.build_request(**exchange.request())
                try:
                    response = self._http.send(request, stream=True)
                    if not response.is_success:
                        response.read()
                except httpx2.RequestError as error:
                    raise exchange.unreachable(error) from error
                try:
                    return exchange.result(response)
                except HeadraceError:
                    response.close()
                    raise
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

    async def receive(self, subscription: Subscription) -> AsyncGenerator[None]:
        """Receive into a subscription without end, over new connections if some are lost.

        It yields after each part, so that the caller can take what has come.

        Raises:
            HeadraceError: the stream is refused, or can't be opened before the deadline.
        """
        while True:
            exchange = Exchange(subscription.call(), self._patience)
            async with aclosing(await self._open(exchange)) as response:
                reason = "the gateway ended it"
                try:
                    async for content in response.aiter_bytes():
                        subscription.receive(content)
                        yield
                except httpx2.RequestError as error:
                    reason = str(exchange.unreachable(error))
            subscription.lose(self._patience.deadline, reason)
            await asyncio.sleep(subscription.pause_s)

    async def _open(self, exchange: Exchange[httpx2.Response]) -> httpx2.Response:
        async for attempt in exchange.attempts():
            with attempt:
                request = self._http.build_request(**exchange.request())
                try:
                    response = await self._http.send(request, stream=True)
                    if not response.is_success:
                        await response.aread()
                except httpx2.RequestError as error:
                    raise exchange.unreachable(error) from error
                try:
                    return exchange.result(response)
                except HeadraceError:
                    await response.aclose()
                    raise
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
