"""The client for code without an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterable
from typing import Any, Self, TypeVar

from events.client.client import Client
from events.client.outcomes import Outcome
from events.client.publisher import Receipt
from events.models import DocumentChanged, QueryAnswer
from events.names import Lane
from runtime.errors import UsageError

__all__ = ["BlockingClient"]

Result = TypeVar("Result")


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
    def connect(cls, redis_url: str, **options: Any) -> Self:
        """Connect with the options of ``Client.connect``."""
        return cls(Client.connect(redis_url, **options))

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

    def publish(
        self, event: DocumentChanged, lane: Lane = Lane.LIVE, *, durable: bool = False
    ) -> Receipt:
        """Publish one change; see ``Client.publish``."""
        return self._run(self._client.publish(event, lane, durable=durable))

    def publish_many(
        self,
        changes: Iterable[DocumentChanged],
        lane: Lane = Lane.LIVE,
        *,
        durable: bool = False,
    ) -> list[Receipt]:
        """Publish changes; see ``Client.publish_many``."""
        return self._run(self._client.publish_many(changes, lane, durable=durable))

    def ask(self, project: str, text: str, **options: Any) -> QueryAnswer:
        """Ask a question with the options of ``Client.ask``."""
        return self._run(self._client.ask(project, text, **options))

    def wait(self, receipts: Iterable[Receipt], **options: Any) -> dict[str, Outcome]:
        """Wait for outcomes with the options of ``Client.wait``."""
        return self._run(self._client.wait(receipts, **options))

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
