"""Worker with all roles in the test's own process, with a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from events.client.operator_client import OperatorClient
from events.client.outcomes import Outcome
from events.client.publisher import Receipt
from events.models import DocumentChange, DocumentIndexed
from events.names import Lane
from processors.embedders.hash_embedder import HASHING_MODEL
from processors.embedding import single_flight
from processors.worker import ROLES, run_worker
from runtime.settings import LOCAL_MODEL, Settings
from tests.support.databases import Database
from tests.support.waiting import slowness

__all__ = ["LOCAL_MODEL", "PATIENCE", "Headrace", "headrace"]

PATIENCE = timedelta(minutes=2)
_LIVE_TIMEOUT = single_flight.LIVE_TIMEOUT


class Headrace:
    """Running worker, with a client."""

    def __init__(self, client: OperatorClient, redis_url: str, database: Database) -> None:
        self.client = client
        self.redis_url = redis_url
        self.database = database

    async def change(
        self,
        uri: str,
        content: str | None = None,
        *,
        lane: Lane = Lane.LIVE,
        vectors: bool = True,
        **data: Any,
    ) -> Outcome:
        """Publish one change to the project ``docs`` (or another) and wait for its outcome.

        With ``vectors``, wait until no chunk of it is pending.
        """
        change = DocumentChange(**{"project": "docs", "uri": uri, "content": content, **data})
        return await self.outcome(await self.client.publish(change, lane), vectors=vectors)

    async def changes(
        self, contents: Mapping[str, str], *, lane: Lane = Lane.LIVE
    ) -> list[Outcome]:
        """Publish texts by uri to the project ``docs`` at once, and wait until all are searchable.

        It takes less time than single changes, because the worker handles them together.
        """
        receipts = [
            await self.client.publish(DocumentChange(project="docs", uri=uri, content=text), lane)
            for uri, text in contents.items()
        ]
        return [await self.outcome(receipt) for receipt in receipts]

    async def outcome(self, receipt: Receipt, *, vectors: bool = True) -> Outcome:
        """Wait for the outcome of a change, and with ``vectors`` for its pending chunks too."""
        outcome = (await self.client.wait([receipt], PATIENCE))[receipt.token]
        if vectors and isinstance(outcome, DocumentIndexed) and outcome.data.chunks_pending:
            await self.client.wait([receipt], PATIENCE, vectors=True)
        return outcome


@asynccontextmanager
async def headrace(
    redis_url: str, database: Database, /, *, only: Collection[str] = tuple(ROLES), **settings: Any
) -> AsyncIterator[Headrace]:
    """Ready worker with a fast model, and a client; both end with the context.

    A setting ``redis_url`` or ``database_url`` applies to the worker only. The vectors of small
    changes are written with their chunks, as on a quiet machine.
    """
    stop, ready = asyncio.Event(), asyncio.Event()
    servers = {"redis_url": redis_url, "database_url": database.worker_url}
    values = {**servers, "model": HASHING_MODEL, **settings}
    with patch.object(single_flight, "LIVE_TIMEOUT", _LIVE_TIMEOUT * slowness()):
        worker = asyncio.create_task(
            run_worker(Settings(**values), stop=stop, only=only, ready=ready.set)
        )
        try:
            await _first(worker, ready.wait)
            async with OperatorClient.connect(redis_url) as client:
                yield Headrace(client, redis_url, database)
        finally:
            stop.set()
            await worker


async def _first(worker: asyncio.Task[None], ready: Callable[[], Any]) -> None:
    """Wait until the worker is ready; its failure is raised."""
    waiting = asyncio.create_task(ready())
    await asyncio.wait({worker, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if worker.done():
        worker.result()
