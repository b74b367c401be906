"""Redis Cluster of six processes, three primaries and a replica of each, that a test may break."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.server.slots import slot_of
from tests.support.crashable_redis import redis_binaries
from tests.support.s3 import free_port
from tests.support.waiting import eventually

__all__ = ["Node", "RedisCluster", "redis_cluster"]

_SLOTS = 16_384
_PRIMARIES = 3
_NODE_TIMEOUT_MS = 3_000
_KEYS_PER_MOVE = 500
_BUS_OFFSET = 10_000
"""The cluster's own port is that of the clients and this number."""


class Node:
    """A server of a cluster, with its files in a directory of its own."""

    def __init__(self, binary: Path, directory: Path, port: int) -> None:
        self.port = port
        self.id = ""
        self._binary = binary
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.client: Redis = Redis(port=port, decode_responses=True)

    def start(self) -> None:
        """Start the process, with the files of its last run."""
        self._directory.mkdir(exist_ok=True)
        users = self._directory / "users.acl"
        users.touch()
        self._process = subprocess.Popen(
            [
                *(str(self._binary), "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--dir", str(self._directory), "--save", "", "--loglevel", "warning"),
                *("--cluster-enabled", "yes", "--cluster-node-timeout", str(_NODE_TIMEOUT_MS)),
                *("--appendonly", "yes", "--repl-diskless-sync-delay", "0"),
                *("--aclfile", str(users)),
            ],
            stdout=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the process for a while; its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    async def answers(self) -> bool:
        """Return whether it answers."""
        try:
            return bool(await self.client.ping())
        except RedisError:
            return False

    async def run(self, *command: object) -> Any:
        """Run a command on this node."""
        client: Any = self.client
        return await client.execute_command(*command)


class RedisCluster:
    """The nodes of a cluster; the first three are primaries at the start."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        """URL with the addresses of all nodes."""
        return self.url_of("")

    def url_of(self, user: str) -> str:
        """URL of a user, given as ``name:password@``."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{user}{hosts}"

    async def primaries(self) -> list[Node]:
        """Return the primaries, in the order of their slots."""
        rows = sorted(await self._rows())
        ports = dict.fromkeys(primary[1] for _, _, primary, *_ in rows)
        return [self._at(port) for port in ports]

    async def primary_of(self, key: str) -> Node:
        """Return the node that has a key."""
        slot = slot_of(key)
        [port] = [
            primary[1] for start, end, primary, *_ in await self._rows() if start <= slot <= end
        ]
        return self._at(port)

    async def replica_of(self, primary: Node) -> Node:
        """Return the replica of a primary."""
        _, _, [[_, port, _], *_] = await primary.run("ROLE")
        return self._at(int(port))

    def _at(self, port: int) -> Node:
        return next(node for node in self.nodes if node.port == port)

    async def _rows(self) -> list[Any]:
        for node in self.nodes:
            try:
                rows: list[Any] = await node.run("CLUSTER SLOTS")
            except RedisError:
                continue
            return rows
        raise AssertionError("no node answers")

    async def is_served(self) -> bool:
        """Return whether all slots have primaries, as seen by every node that answers."""
        infos = []
        for node in self.nodes:
            try:
                infos.append(await node.client.cluster("INFO"))
            except RedisError:
                continue
        return all(info["cluster_state"] == "ok" for info in infos)

    async def move(self, key: str, target: Node) -> None:
        """Move the slot of a key to another primary, as ``redis-cli --cluster reshard`` does."""
        await self.begin_move(key, target)
        await self.move_keys(key, target)
        await self.end_move(key, target)

    async def begin_move(self, key: str, target: Node) -> None:
        """Let the nodes know that the slot of a key will move."""
        slot, source = slot_of(key), await self.primary_of(key)
        await target.run("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        await source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)

    async def move_keys(self, key: str, target: Node) -> None:
        """Move the keys of the slot, as far as it has any now."""
        slot, source = slot_of(key), await self.primary_of(key)
        while keys := await source.run("CLUSTER", "GETKEYSINSLOT", slot, _KEYS_PER_MOVE):
            address = ("127.0.0.1", target.port, "", 0, 20_000)
            await source.run("MIGRATE", *address, "KEYS", *keys)

    async def end_move(self, key: str, target: Node) -> None:
        """Let the nodes know that the slot has moved."""
        slot, source = slot_of(key), await self.primary_of(key)
        await target.run("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        await source.run("CLUSTER", "SETSLOT", slot, "NODE", target.id)

    async def emptied(self) -> None:
        """Delete all keys."""
        for node in self.nodes:
            if "master" in (await node.run("ROLE"))[0]:
                await node.run("FLUSHALL")

    async def is_whole(self) -> bool:
        """Return whether all nodes run, agree, and each primary has a replica in step.

        A node hears of another's replica by gossip, so later than both of those.
        """
        try:
            infos = [await node.client.cluster("INFO") for node in self.nodes]
            roles = [await node.run("ROLE") for node in self.nodes]
            maps = [await self._map_seen_by(node) for node in self.nodes]
        except RedisError:
            return False
        return (
            all(info["cluster_state"] == "ok" for info in infos)
            and [role[0] for role in roles].count("master") == _PRIMARIES
            and all(role[2] if role[0] == "master" else role[3] == "connected" for role in roles)
            and all(seen == maps[0] for seen in maps)
            and all(len(ports) > 1 for *_, ports in maps[0])
        )

    async def _map_seen_by(self, node: Node) -> list[tuple[int, int, list[int]]]:
        """Return first and last slot of each range, with the ports of its primary and replicas."""
        rows = await node.run("CLUSTER SLOTS")
        return sorted(
            (start, end, [primary[1], *sorted(replica[1] for replica in replicas)])
            for start, end, primary, *replicas in rows
        )


@asynccontextmanager
async def redis_cluster(directory: Path, binary: Path | None = None) -> AsyncIterator[RedisCluster]:
    """Start a cluster with ``directory`` for its files; its processes are killed at the end."""
    program = binary or redis_binaries()[0]
    ports = [free_port(_BUS_OFFSET) for _ in range(2 * _PRIMARIES)]
    nodes = [Node(program, directory / str(port), port) for port in ports]
    try:
        for node in nodes:
            node.start()
        cluster = RedisCluster(nodes)
        await _join(nodes)
        await eventually(cluster.is_whole, "the cluster is whole", timeout=30)
        yield cluster
    finally:
        for node in nodes:
            node.kill()
            await node.client.aclose()


async def _join(nodes: list[Node]) -> None:
    for node in nodes:
        await eventually(node.answers, "the node answers")
        node.id = await node.run("CLUSTER", "MYID")
    primaries, replicas = nodes[:_PRIMARIES], nodes[_PRIMARIES:]
    for number, node in enumerate(primaries):
        first = number * _SLOTS // _PRIMARIES
        await node.run("CLUSTER", "ADDSLOTS", *range(first, (number + 1) * _SLOTS // _PRIMARIES))
        await node.run("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for node in nodes[1:]:
        await nodes[0].run("CLUSTER", "MEET", "127.0.0.1", node.port)
    await eventually(lambda: _all_know(nodes), "the nodes know each other", timeout=30)
    for replica, primary in zip(replicas, cycle(primaries), strict=False):
        await replica.run("CLUSTER", "REPLICATE", primary.id)


async def _all_know(nodes: Iterable[Node]) -> bool:
    known = await asyncio.gather(*(node.run("CLUSTER", "NODES") for node in nodes))
    return all(len(rows.splitlines()) == len(known) for rows in known)
