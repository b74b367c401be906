"""The client for code without an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from events.client.client import TIMEOUT, Client
from events.client.outcomes import Outcome
from events.client.publisher import INLINE_LIMIT_BYTES, ContentStore, Receipt
from events.outbox import Outbox
from runtime.errors import UsageError

__all__ = ["BlockingClient"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _blocking(
    method: Callable[Concatenate[Client, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[BlockingClient, Arguments], Result]:
    """Make a blocking method, with the same signature and documentation."""

    @wraps(method)
    def call(
        client: BlockingClient, /, *positional: Arguments.args, **keywords: Arguments.kwargs
    ) -> Result:
        return client._run(method(client._client, *positional, **keywords))

    return call


class BlockingClient:
    """Blocking variant of ``Client``; safe to use from many threads.

    The event loop runs in its own thread, from ``connect`` to ``close``. A call after ``close``, or
    in a process that was forked since ``connect``, raises ``UsageError``.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="headrace-client", daemon=True
        )
        self._thread.start()

    @classmethod
    def connect(
        cls,
        redis_url: str,
        *,
        prefix: str = "headrace",
        partitions: int | None = None,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
        content_store: ContentStore | None = None,
        outbox: Outbox | None = None,
        signing_key: str | None = None,
    ) -> Self:
        """Create a client of the deployment with this prefix; see ``Client.connect``."""
        client = Client.connect(
            redis_url,
            prefix=prefix,
            partitions=partitions,
            inline_limit_bytes=inline_limit_bytes,
            content_store=content_store,
            outbox=outbox,
            signing_key=signing_key,
        )
        return cls(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client and end its thread; further calls do nothing."""
        if self._loop.is_closed() or self._is_forked():
            return  # the connections belong to the parent process
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    upsert = _blocking(Client.upsert)
    rename = _blocking(Client.rename)
    delete = _blocking(Client.delete)
    publish = _blocking(Client.publish)
    publish_many = _blocking(Client.publish_many)
    keep_content = _blocking(Client.keep_content)
    ask = _blocking(Client.ask)
    judge = _blocking(Client.judge)
    wait = _blocking(Client.wait)

    def outcomes(
        self,
        receipts: Iterable[Receipt],
        patience: timedelta = TIMEOUT,
        *,
        vectors: bool = False,
    ) -> Iterator[Outcome]:
        """Yield the outcome of each receipt's change; see ``Client.outcomes``."""
        outcomes = self._client.outcomes(receipts, patience, vectors=vectors)
        while (outcome := self._run(_next(outcomes))) is not None:
            yield outcome

    def _is_forked(self) -> bool:
        return os.getpid() != self._process

    def _run(self, call: Coroutine[Any, Any, Result]) -> Result:
        reason = self._why_unusable()
        if reason:
            call.close()
            raise UsageError(reason)
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _why_unusable(self) -> str:
        if self._is_forked():
            # threads do not survive a fork, so a call would wait for ever
            return "this client was connected before the process forked: connect in each process"
        if self._loop.is_closed():
            return "this client is closed: connect another one"
        return ""


async def _next(outcomes: AsyncIterator[Outcome]) -> Outcome | None:
    return await anext(outcomes, None)
