"""Reads that wait for entries, and their early end.

A read that waits is never cancelled, since its entries would be pending for a consumer that never
received them. ``CLIENT UNBLOCK`` ends it as if its time were over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection

from events.server.cluster import all_ended, open_nodes

__all__ = [
    "PATIENCE_S",
    "SHARE_OF_TIMEOUT",
    "Endable",
    "are_endable",
    "end_reads",
    "longest_wait_s",
]

SHARE_OF_TIMEOUT = 14 / 19
"""Part of a socket's timeout that a read may wait; the rest is for a slow server."""
PATIENCE_S = 5.0
"""Time that a slow server has for a short command, or for more than the wait of a read."""


class Endable(AbstractConnection):
    """Connection whose waiting read can be ended, if the server lets our user do so.

    ``client_id`` is its id at the server, and None if our user may not end reads.
    """

    client_id: int | None = None

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        """Begin as the base class does, then read the id."""
        await super().on_connect_check_health(check_health)
        self.client_id = None
        try:
            client_id = int(await self._reply("CLIENT", "ID"))
            await self._reply("CLIENT", "UNBLOCK", client_id)  # without effect: nothing waits
        except exceptions.ResponseError:
            return
        self.client_id = client_id

    async def _reply(self, *command: Any) -> Any:
        await self.send_command(*command, check_health=False)
        return await self.read_response()


def are_endable(client: Redis) -> bool:
    """Return whether the reads of a client can be ended; False before its first connection."""
    pools = [node.connection_pool for node in open_nodes(client)]
    ids = [
        *(client_id for pool in pools for client_id in _client_ids(pool._available_connections)),
        *(client_id for pool in pools for client_id in _client_ids(pool._in_use_connections)),
    ]
    return bool(ids) and all(ids)


def longest_wait_s(client: Redis) -> float:
    """Return for how many seconds a read may wait without a timeout of its socket."""
    return SHARE_OF_TIMEOUT * float(client.connection_pool.connection_kwargs["socket_timeout"])


async def end_reads(client: Redis) -> None:
    """End the reads of a client that wait now, at each server that answers; they return nothing.

    Raises:
        RedisError, OSError: a server can't be reached.
    """
    await all_ended([_end_reads_at(node) for node in open_nodes(client)])


async def _end_reads_at(node: Redis) -> None:
    ids = [*filter(None, _client_ids(node.connection_pool._in_use_connections))]
    async with asyncio.timeout(PATIENCE_S), node.pipeline(transaction=False) as pipeline:
        for client_id in ids:
            pipeline.client_unblock(client_id)
        await pipeline.execute()


def _client_ids(connections: Iterable[AbstractConnection]) -> list[int | None]:
    """Return the ids of those that are connected; a lost connection keeps its last one."""
    return [
        connection.client_id if isinstance(connection, Endable) else None
        for connection in connections
        if connection.is_connected
    ]
