"""Checks of Redis: whether it is fit to store a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from redis.asyncio import Redis

from events.server.cluster import address_of, nodes_of
from events.server.connection import redis_errors
from processors.doctor.findings import Condition, State
from runtime.errors import ConfigurationError

__all__ = ["check_redis", "redis_facts"]

_STATES: Sequence[State] = (State.OK, State.WARNING, State.PROBLEM)
_OLDEST = (6, 2)
_FULL = 0.95
_NEARLY_FULL = 0.8
_MIB = 2**20


async def redis_facts(redis: Redis) -> Mapping[str, Mapping[str, Any]]:
    """Read facts about each server, by its address; a cluster has several, with the replicas.

    Raises:
        ConfigurationError: a server refused our user; of a cluster, with the address of the node.
        Unavailable: a server can't be reached.
    """
    with redis_errors():
        nodes = await nodes_of(redis)
    read = _facts if len(nodes) == 1 else _facts_of_member
    return {address_of(node): await read(node) for node in nodes}


async def _facts_of_member(node: Redis) -> Mapping[str, Any]:
    """Read the facts of one node of a cluster; nodes do not copy users to each other."""
    try:
        return await _facts(node)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{address_of(node)}: {error.message}",
            "run `headrace access` again: it creates the users on each node",
        ) from error


async def _facts(node: Redis) -> Mapping[str, Any]:
    with redis_errors():
        async with node.pipeline(transaction=False) as pipeline:
            for section in ("server", "memory", "persistence", "replication"):
                pipeline.info(section)
            pipeline.acl_whoami()
            *parts, user = await pipeline.execute()
    facts = {name: value for part in parts for name, value in part.items()}
    return {**facts, "user": str(user)}


def check_redis(all_facts: Mapping[str, Mapping[str, Any]]) -> Iterator[Condition]:
    """Judge version, persistence, eviction, memory and our user, and the replicas of a cluster.

    Of a cluster, each condition is that of the node in the worst state, whose address is named.
    """
    if len(all_facts) == 1:
        [facts] = all_facts.values()
        yield from _conditions(facts)
        return
    by_node = {address: [*_conditions(facts)] for address, facts in all_facts.items()}
    for conditions in zip(*by_node.values(), strict=True):
        named = zip(by_node, conditions, strict=True)
        address, worst = max(named, key=lambda pair: _STATES.index(pair[1].state))
        is_fine = worst.state is State.OK
        yield worst if is_fine else replace(worst, detail=f"{address}: {worst.detail}")
    yield _replicas(all_facts)


def _replicas(all_facts: Mapping[str, Mapping[str, Any]]) -> Condition:
    primaries = [address for address, facts in all_facts.items() if facts["role"] == "master"]
    alone = [address for address in primaries if not all_facts[address]["connected_slaves"]]
    name = "redis.cluster"
    counts = f"{len(primaries)} primaries, {len(all_facts) - len(primaries)} replicas"
    if alone:
        return Condition.warning(
            name,
            f"{counts}; no replica follows {', '.join(alone)}",
            "start a replica of each primary: if a primary without one is lost, so is its part of "
            "the log",
        )
    return Condition.ok(name, counts)


def _conditions(facts: Mapping[str, Any]) -> Iterator[Condition]:
    yield _version(str(facts["redis_version"]))
    yield _persistence(facts)
    yield _eviction(str(facts["maxmemory_policy"]))
    yield _memory(facts)
    yield _user(str(facts["user"]))


def _version(version: str) -> Condition:
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers < _OLDEST:
        return Condition.problem("redis.version", version, "upgrade Redis to 6.2 or later")
    return Condition.ok("redis.version", version)


def _persistence(facts: Mapping[str, Any]) -> Condition:
    name = "redis.persistence"
    if not facts.get("aof_enabled"):
        return Condition.warning(
            name,
            "no append-only file: a crash loses everything since the last snapshot",
            "set `appendonly yes` in Redis",
        )
    if facts.get("aof_last_write_status") != "ok":
        return Condition.problem(
            name, "the append-only file can't be written", "free up space on the disk of Redis"
        )
    return Condition.ok(name, "append-only file")


def _eviction(policy: str) -> Condition:
    if policy != "noeviction":
        return Condition.problem(
            "redis.eviction",
            f"{policy}: whole streams are lost when the memory is full",
            "set `maxmemory-policy noeviction` in Redis",
        )
    return Condition.ok("redis.eviction", policy)


def _memory(facts: Mapping[str, Any]) -> Condition:
    name = "redis.memory"
    used, limit = int(facts["used_memory"]), int(facts["maxmemory"])
    whole = limit or int(facts.get("total_system_memory") or 0)
    of = "" if not whole else f" of {whole / _MIB:,.0f} MiB" + ("" if limit else " in the machine")
    detail = f"{used / _MIB:,.0f} MiB{of}"
    remedy = "run an archiver to trim the streams (`headrace worker`), or give Redis more memory"
    share = used / whole if whole else 0.0
    if share >= _FULL:
        return Condition.problem(name, f"{detail}: publishing is refused", remedy)
    if share >= _NEARLY_FULL:
        return Condition.warning(name, detail, remedy)
    return Condition.ok(name, detail)


def _user(name: str) -> Condition:
    """Note the default user. This is not a problem: a private server does not need other users."""
    if name == "default":
        return Condition.ok(
            "redis.user",
            "default, which has all rights: `headrace access` creates users with fewer",
        )
    return Condition.ok("redis.user", name)
