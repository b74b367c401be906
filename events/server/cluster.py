"""Redis Cluster behind the interface of one server: each command goes to the node of its key.

Connections, protocol and replies are those of redis-py's client of one server, one for each node.
Its cluster client is not used: it closes the connections of other callers when a slot has moved,
sends ASKING over another connection than the command, and has no bounded pools that wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from events.server.slots import (
    READS,
    SCRIPT_LOAD,
    STREAMS,
    Address,
    SlotMap,
    slot_of,
    slot_of_command,
    streams_of,
)
from runtime.errors import ConfigurationError

__all__ = [
    "ClusterClient",
    "address_of",
    "all_ended",
    "nodes_of",
    "open_nodes",
    "primaries_of",
    "unlisted_members",
]

log = logging.getLogger(__name__)


_MOST_REDIRECTS = 5
_REFRESH_SECONDS = 0.25
_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = (0.005, 0.1)
"""First and longest pause between two looks at streams of several slots."""

_OVER_MANY_KEYS = {"DEL", "EXISTS", "UNLINK"}
_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
_NOT_RUN = (
    *(exceptions.AskError, exceptions.ClusterDownError, exceptions.TryAgainError),
    exceptions.NoScriptError,
)
"""Errors after which later commands of a slot must not run, or they would overtake."""

_Command = tuple[tuple[Any, ...], Mapping[str, Any]]


class ClusterClient(Redis):
    """Client of a cluster; ``open_node`` creates the client of one node, which never retries.

    A command that a node refused because it does not have the slot is sent to the node that has
    it: it was not executed. After a lost connection the error is raised, as by a client of one
    server, and the slots are read again before the next command, at most every 0.25 s.

    A command without a key runs on the node of slot 0, or in a pipeline on that of the first key.
    """

    def __init__(self, seeds: Sequence[Address], open_node: Callable[[Address], Redis]) -> None:
        self._open_node = open_node
        self._nodes: dict[Address, Redis] = {}
        super().__init__(connection_pool=self._node(seeds[0]).connection_pool)
        self.seeds = list(seeds)
        self._slots = SlotMap(seeds)
        self._is_outdated = True
        self._refreshed_at = 0.0
        self._failed: Address | None = None
        self._refreshing = asyncio.Lock()

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close the connections to all nodes."""
        for node in self._nodes.values():
            await node.aclose(close_connection_pool)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """Create a pipeline; the keys of a transaction must be in one slot."""
        return _ClusterPipeline(self, transaction=transaction)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command on the node that has its key.

        Raises:
            RedisError: as of a client of one server; TryAgainError, if the slot moves for longer
                than five redirections.
            ConfigurationError: the command has no key, and may not run on any node.
        """
        if args[0] == SCRIPT_LOAD:
            return (await self._on_each_primary(*args))[0]
        if args[0] in READS and len({slot_of(key) for key in streams_of(args)}) > 1:
            return await self._read_apart(args, options)
        if args[0] in _OVER_MANY_KEYS and len({slot_of(key) for key in args[1:]}) > 1:
            return await self._count_apart(args)
        return await self.run_at(slot_of_command(args) or 0, args, options)

    async def run_at(self, slot: int, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Run a command on the node that has a slot, and follow its redirections."""

        async def run(node: Redis) -> Any:
            return await _run(node, args, options)

        async def run_asking(node: Redis) -> Any:
            async with node.pipeline(transaction=False) as pipeline:
                _queue(pipeline, ("ASKING",), {})
                _queue(pipeline, args, options)
                _, reply = await pipeline.execute(raise_on_error=False)
            if isinstance(reply, Exception):
                raise reply
            return reply

        return await self._redirected(slot, run, run_asking)

    async def transact(self, commands: Sequence[_Command]) -> list[Any]:
        """Run commands in one transaction on the node of their slot."""

        async def run(node: Redis) -> list[Any]:
            async with node.pipeline(transaction=True) as pipeline:
                for args, options in commands:
                    _queue(pipeline, args, options)
                result: list[Any] = await pipeline.execute(raise_on_error=False)
                return result

        slots = {slot for args, _ in commands if (slot := slot_of_command(args)) is not None}
        if len(slots) != 1:
            raise ConfigurationError("a transaction on a cluster needs keys of one slot")
        replies: list[Any] = await self._redirected(slots.pop(), run, None)
        return replies

    async def run_all(self, commands: Sequence[_Command]) -> list[Any]:
        """Run commands, on each node in one round trip; a reply may be an error.

        Commands of one slot run in their order: if one could not run, none behind it does.
        """
        slots = [slot_of_command(args) for args, _ in commands]
        first = next((slot for slot in slots if slot is not None), 0)
        parts: defaultdict[Address, list[int]] = defaultdict(list)
        for number, slot in enumerate(slots):
            if commands[number][0][0] != SCRIPT_LOAD:
                parts[await self._owner(first if slot is None else slot)].append(number)
        loads = [n for n, (args, _) in enumerate(commands) if args[0] == SCRIPT_LOAD]
        runs = [
            self._run_part(owner, commands, sorted(loads + part)) for owner, part in parts.items()
        ]
        outcomes = await all_ended(runs)
        replies: list[Any] = [None] * len(commands)
        for part in outcomes:
            for number, reply in part.items():
                replies[number] = reply
        await self._run_redirected(commands, [first if s is None else s for s in slots], replies)
        return replies

    async def _run_part(
        self, owner: Address, commands: Sequence[_Command], numbers: Sequence[int]
    ) -> dict[int, Any]:
        try:
            async with self._node(owner).pipeline(transaction=False) as pipeline:
                for number in numbers:
                    _queue(pipeline, *commands[number])
                replies = await pipeline.execute(raise_on_error=False)
        except _LOST:
            self._outdate(owner)
            raise
        if any(isinstance(reply, exceptions.ClusterDownError) for reply in replies):
            self._outdate(owner)
        return dict(zip(numbers, replies, strict=True))

    async def _run_redirected(
        self, commands: Sequence[_Command], slots: Sequence[int], replies: list[Any]
    ) -> None:
        """Run the redirected commands one by one, but none behind one of its slot that can't run.

        The commands behind would overtake it, because its caller will repeat it.
        """
        stuck: dict[int, Exception] = {}
        for number, slot in enumerate(slots):
            reply = replies[number]
            if isinstance(reply, exceptions.AskError):
                args, options = commands[number]
                try:
                    replies[number] = stuck.get(slot) or await self.run_at(slot, args, options)
                except exceptions.ResponseError as error:
                    replies[number] = error
            if isinstance(replies[number], _NOT_RUN):
                stuck.setdefault(slot, replies[number])

    async def _redirected(
        self,
        slot: int,
        run: Callable[[Redis], Awaitable[Any]],
        run_asking: Callable[[Redis], Awaitable[Any]] | None,
    ) -> Any:
        for _ in range(_MOST_REDIRECTS):
            owner = await self._owner(slot)
            try:
                return await run(self._node(owner))
            except exceptions.MovedError as error:
                self._slots.move(slot, Address(error.host or owner.host, error.port))
                self._outdate()
            except exceptions.AskError as error:
                if run_asking is None:
                    raise exceptions.TryAgainError("TRYAGAIN the slot is moving") from error
                return await self._asking(Address(error.host or owner.host, error.port), run_asking)
            except exceptions.ClusterDownError:
                self._outdate(owner)
                raise
            except _LOST:
                self._outdate(owner)
                raise
        raise exceptions.TryAgainError("TRYAGAIN the slot has moved several times")

    async def _asking(self, target: Address, run_asking: Callable[[Redis], Awaitable[Any]]) -> Any:
        try:
            return await run_asking(self._node(target))
        except exceptions.AskError as error:  # the move has ended or was cancelled
            self._outdate()
            raise exceptions.TryAgainError("TRYAGAIN the slot is moving") from error

    async def _read_apart(self, args: Sequence[Any], options: Mapping[str, Any]) -> list[Any]:
        """Read streams of several slots: no node can wait for all of them, so look repeatedly."""
        at = args.index(STREAMS)
        head, keys, ids = list(args[:at]), streams_of(args), args[-len(streams_of(args)) :]
        wait_seconds = 0.0
        if b"BLOCK" in head:
            block = head.index(b"BLOCK")
            wait_seconds = int(head[block + 1]) / 1000
            del head[block : block + 2]
        commands: list[_Command] = [
            ((*head, STREAMS, key, entry_id), dict(options))
            for key, entry_id in zip(keys, ids, strict=True)
        ]
        deadline = monotonic() + wait_seconds
        pause, longest = _PAUSE_SECONDS
        while True:
            replies = await self.run_all(commands)
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
            rows = [row for reply in replies for row in reply or ()]
            left = deadline - monotonic()
            if rows or left <= 0:
                return rows
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, longest)

    async def _count_apart(self, args: Sequence[Any]) -> int:
        replies = await self.run_all([((args[0], key), {}) for key in args[1:]])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return sum(replies)

    async def _on_each_primary(self, *args: Any) -> list[Any]:
        return await all_ended([_run(node, args, {}) for node in await self.primaries()])

    async def primaries(self) -> list[Redis]:
        """Return a client for each primary, in the order of their addresses."""
        await self._look()
        return [self._node(address) for address in self._slots.primaries]

    async def nodes(self) -> list[Redis]:
        """Return a client for each node, also for replicas."""
        await self._look()
        slots = self._slots
        return [self._node(address) for address in (*slots.primaries, *slots.replicas)]

    @property
    def open_nodes(self) -> list[Redis]:
        """Clients of the nodes that were used so far."""
        return list(self._nodes.values())

    async def _look(self) -> None:
        """Read the slots: the callers of a node do not report that it is lost."""
        self._is_outdated = True
        await self._refresh_if_outdated()

    def _node(self, address: Address) -> Redis:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = self._open_node(address)
        return node

    async def _owner(self, slot: int) -> Address:
        await self._refresh_if_outdated()
        owner = self._slots.owner(slot)
        if owner is None:
            self._is_outdated = True
            raise exceptions.ClusterDownError(f"CLUSTERDOWN slot {slot} has no node")
        return owner

    def _outdate(self, failed: Address | None = None) -> None:
        """Have the slots read again before the next command."""
        self._is_outdated = True
        self._failed = failed or self._failed

    async def _refresh_if_outdated(self) -> None:
        if self._may_refresh():
            async with self._refreshing:
                if self._may_refresh():
                    await self._refresh()

    def _may_refresh(self) -> bool:
        is_due = monotonic() - self._refreshed_at >= _REFRESH_SECONDS
        return self._is_outdated and (is_due or not self._slots.primaries)

    async def _refresh(self) -> None:
        """Read the slots from any node.

        Raises:
            ConnectionError: no node answers, and none ever has; AuthenticationError is one, too.
        """
        lost: Exception | None = None
        for address in self._slots.sources(self._failed):
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    rows = await _run(self._node(address), ["CLUSTER SLOTS"], {})
            except _LOST as error:
                log.info("cluster.node_silent: %s: %s", address, error)
                lost = error
                continue
            except exceptions.ResponseError as error:
                if "cluster support disabled" not in str(error):
                    raise
                raise ConfigurationError(
                    f"{address} in HEADRACE_REDIS_URL is not a node of a cluster",
                    "write redis:// for a single server",
                ) from error
            if not rows:  # it does not belong to the cluster yet, or not any more
                continue
            self._slots.replace(rows, address.host)
            self._is_outdated, self._failed = False, None
            break
        self._refreshed_at = monotonic()
        if not self._slots.primaries:
            raise lost or exceptions.ConnectionError("no node of the cluster has slots")


class _ClusterPipeline(Pipeline):
    """Pipeline whose commands are sent to their nodes when it is executed."""

    def __init__(self, cluster: ClusterClient, *, transaction: bool) -> None:
        pool, callbacks = cluster.connection_pool, cluster.response_callbacks
        super().__init__(pool, callbacks, transaction, None)
        self._cluster = cluster

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run the commands and return their replies in order."""
        commands, self.command_stack = self.command_stack, []
        if not commands:
            return []
        run = self._cluster.transact if self.is_transaction else self._cluster.run_all
        replies = await run(commands)
        if raise_on_error:
            self.raise_first_error(commands, replies)
        return replies


async def primaries_of(redis: Redis) -> list[Redis]:
    """Return a client for each server that has keys: the given one, unless it is of a cluster."""
    return await redis.primaries() if isinstance(redis, ClusterClient) else [redis]


async def nodes_of(redis: Redis) -> list[Redis]:
    """Return a client for each server, with the replicas of a cluster."""
    return await redis.nodes() if isinstance(redis, ClusterClient) else [redis]


async def unlisted_members(redis: Redis) -> list[str]:
    """Return the addresses of a cluster's members that ``nodes_of`` lacks.

    They are down, have no slots and follow no primary, or joined a moment ago. A server that is not
    of a cluster has none.
    """
    if not isinstance(redis, ClusterClient):
        return []
    node = (await redis.nodes())[0]
    rows = await _run(node, ["CLUSTER SLOTS"], {})
    listed = {member[2].decode() for _, _, *members in rows for member in members}
    known = await _run(node, ["CLUSTER NODES"], {})
    return sorted(
        address
        for address, member in known.items()
        if member["node_id"] not in listed and "handshake" not in member["flags"]
    )


def open_nodes(redis: Redis) -> list[Redis]:
    """Return a client for each server that was used so far, without a command."""
    return redis.open_nodes if isinstance(redis, ClusterClient) else [redis]


def address_of(node: Redis) -> str:
    """Return host and port of the server of a client."""
    options = node.connection_pool.connection_kwargs
    return f"{options.get('host')}:{options.get('port')}"


async def _run(node: Redis, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    run: Any = node.execute_command
    return await run(*args, **options)


def _queue(pipeline: Pipeline, args: Sequence[Any], options: Mapping[str, Any]) -> None:
    queue: Any = pipeline.execute_command
    queue(*args, **options)


async def all_ended(runs: Iterable[Awaitable[Any]]) -> list[Any]:
    """Return the results when all have ended, or raise the first error then."""
    pending = list(runs)
    if len(pending) == 1:
        return [await pending[0]]
    results = await asyncio.gather(*pending, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
