"""Client of a Redis Cluster: commands of several nodes, slots that move, users and checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError, TryAgainError

from events.client.client import Client
from events.client.outcomes import Outcomes
from events.client.publisher import Receipt
from events.deployment import Stamp, begin_raise, complete_raise, put_stamp, read_stamp
from events.models import (
    DocumentChange,
    DocumentChanged,
    DocumentIndexed,
    DocumentIndexedData,
)
from events.names import Lane, LogPosition, Names, Topic
from events.server.acl import Role, save_users, user_name
from events.server.cluster import nodes_of, primaries_of, unlisted_members
from events.server.connection import check_server, connect, read_memory, redis_errors
from events.server.persistence import rewrite_files
from events.streams.backlog import read_backlog
from events.streams.entries import order
from events.streams.purge import PurgeTargets, StreamPurge
from processors.doctor.checks.environment import redis_clock
from processors.doctor.checks.redis_server import check_redis, redis_facts
from processors.doctor.findings import State
from runtime.errors import ConfigurationError, Unavailable
from tests.support.doors import open_doors
from tests.support.redis_cluster import RedisCluster
from tests.support.streams import read_stream
from tests.support.waiting import eventually

NAMES = Names(partitions=6)
KEYS = [f"key{number}" for number in range(12)]
PATIENCE = timedelta(seconds=30)


@pytest.fixture
async def redis(cluster: RedisCluster) -> AsyncIterator[Redis]:
    """Client of the cluster, which is empty."""
    await cluster.emptied()
    async with connect(cluster.url) as client:
        yield client


@pytest.fixture
async def client(cluster: RedisCluster, redis: Redis) -> AsyncIterator[Client]:
    """Publisher and asker."""
    async with Client.connect(cluster.url, partitions=NAMES.partitions) as it:
        yield it


def change(uri: str, content: str = "text") -> DocumentChanged:
    return DocumentChanged(data=DocumentChange(project="docs", uri=uri, content=content))


def indexed(receipt: Receipt) -> DocumentIndexed:
    return DocumentIndexed(
        data=DocumentIndexedData(
            event_id=receipt.event_id,
            token=receipt.token,
            project="docs",
            uri="a",
            change="upsert",
            outcome="indexed",
        )
    )


async def test_commands_go_to_the_nodes_of_their_keys(redis: Redis, cluster: RedisCluster) -> None:
    """A pipeline over all nodes has its replies in order, with errors among them."""
    assert len({(await cluster.primary_of(key)).port for key in KEYS}) == 3
    async with redis.pipeline(transaction=False) as pipeline:
        for key in KEYS:
            pipeline.set(key, key)
        pipeline.incr(KEYS[0])
        for key in KEYS:
            pipeline.get(key)
        pipeline.time()
        *replies, (seconds, _) = await pipeline.execute(raise_on_error=False)
    assert replies[: len(KEYS)] == [True] * len(KEYS)
    assert isinstance(replies[len(KEYS)], ResponseError)
    assert replies[len(KEYS) + 1 :] == [key.encode() for key in KEYS]
    assert seconds > 0
    assert await redis.exists(*KEYS, "absent") == len(KEYS)
    assert await redis.unlink(*KEYS) == len(KEYS)


async def test_reads_wait_for_streams_of_several_nodes(redis: Redis) -> None:
    """A read ends with the first news of any node, and without news after its time."""
    streams = [NAMES.stream(Topic.OUTCOME, number) for number in range(NAMES.partitions)]
    after: Any = dict.fromkeys(streams, "0")
    assert await redis.xread(after, block=20) == []
    reading = asyncio.ensure_future(redis.xread(after, block=60_000))
    await asyncio.sleep(0)
    entry_id = await redis.xadd(streams[3], {"a": "b"})
    assert await reading == [[streams[3].encode(), [(entry_id, {b"a": b"b"})]]]


async def test_partitions_are_raised_on_all_nodes(redis: Redis, cluster: RedisCluster) -> None:
    """Changes of a document get later positions on another node, and each is stored once."""
    names, stamp = Names(), Stamp(id="0" * 32, prefix=NAMES.prefix, partitions=1)
    await put_stamp(redis, names, stamp)
    rounds: list[list[Receipt]] = []

    async def publish(client: Client) -> None:
        while len({receipt.token.split(":")[1] for receipt in rounds[-1]} if rounds else ()) < 2:
            rounds.append(await client.publish_many([change(uri) for uri in KEYS]))
        rounds.append(await client.publish_many([change(uri) for uri in KEYS]))

    async with Client.connect(cluster.url) as client, Client.connect(cluster.url) as other:
        publishing = asyncio.gather(publish(client), publish(other))
        await eventually(lambda: len(rounds) > 4, "changes are published")
        raised = await begin_raise(redis, names, 16, stamp.id)
        await asyncio.gather(*(complete_raise(redis, names, raised) for _ in range(2)))
        await publishing
    raised_names = Names(partitions=16)
    keys = [raised_names.stream(Topic.CHANGED_LIVE, n) for n in range(16)]
    assert len({(await cluster.primary_of(key)).port for key in keys}) == 3
    stored = [
        (entry.id, DocumentChanged.from_bytes(entry.fields[b"event"]).data.uri, n)
        for n, key in enumerate(keys)
        for entry in await read_stream(redis, key)
    ]
    assert len(stored) == sum(map(len, rounds))
    for uri in KEYS:
        homes = [n for _, name, n in sorted(stored, key=lambda row: order(row[0])) if name == uri]
        home = raised_names.partition_of("docs", uri)
        assert homes == sorted(homes, key=lambda n: n == home)  # all before, then all after
        assert {0, home} == set(homes)


async def test_a_raise_ends_when_the_replicas_have_its_notes(
    redis: Redis, cluster: RedisCluster
) -> None:
    """A replica that takes over after a raise refuses changes by the former number, too."""
    names, stamp = Names(), Stamp(id="0" * 32, prefix=NAMES.prefix, partitions=1)
    await put_stamp(redis, names, stamp)
    raised = await begin_raise(redis, names, 2, stamp.id)
    note = names.number_key(0)
    replica = await cluster.replica_of(await cluster.primary_of(note))
    with replica.stopped(), pytest.raises(Unavailable, match="1 of 1 replicas of 127"):
        await complete_raise(redis, names, raised, patience=timedelta(milliseconds=100))
    assert await read_stamp(redis, names) == raised
    await complete_raise(redis, names, raised)
    completed = await read_stamp(redis, names)
    assert completed is not None
    assert not completed.is_raising
    async with replica.client.client() as connection:
        await connection.readonly()
        assert await connection.get(note) == "2"


async def test_transactions_are_of_one_slot(redis: Redis) -> None:
    """A transaction runs on the node of its slot, and is refused over several slots."""
    async with redis.pipeline(transaction=True) as pipeline:
        pipeline.set("{tag}a", 1)
        pipeline.incr("{tag}a")
        assert await pipeline.execute() == [True, 2]
        for key in KEYS:
            pipeline.get(key)
        with pytest.raises(ConfigurationError, match="one slot"):
            await pipeline.execute()


async def test_slot_that_has_moved(client: Client, redis: Redis, cluster: RedisCluster) -> None:
    """Clients follow a slot to another node, with single commands, pipelines and transactions."""
    stream = NAMES.stream(Topic.CHANGED_LIVE, 0)
    uris = [uri for n in range(60) if NAMES.partition_of("docs", uri := f"{n}.md") == 0]
    changes = [change(uri) for uri in uris]
    await client.publish_many(changes[:2])
    source = await cluster.primary_of(stream)
    target = next(node for node in await cluster.primaries() if node is not source)
    await cluster.move(stream, target)
    await client.publish_many(changes[2:5])
    assert [entry.fields[b"event"] for entry in await read_stream(redis, stream)] == [
        one.to_bytes() for one in changes[:5]
    ]
    await cluster.move(stream, source)
    async with redis.pipeline(transaction=True) as pipeline:
        pipeline.xlen(stream)
        assert await pipeline.execute() == [5]


async def test_slot_that_moves(client: Client, redis: Redis, cluster: RedisCluster) -> None:
    """While a slot moves, single keys are found on both nodes, and publishing waits for the end."""
    stream, other = NAMES.stream(Topic.CHANGED_LIVE, 1), NAMES.trimmed(1)
    await redis.xadd(stream, {"event": "first"})
    uris = [uri for n in range(60) if NAMES.partition_of("docs", uri := f"{n}.md") == 1]
    source = await cluster.primary_of(stream)
    target = next(node for node in await cluster.primaries() if node is not source)
    await cluster.begin_move(stream, target)
    assert await redis.hincrby(other, Lane.LIVE, 3) == 3  # the target creates it
    assert await redis.xlen(stream) == 1
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.hgetall(other)
        pipeline.xlen(stream)
        assert await pipeline.execute() == [{b"live": b"3"}, 1]
    with pytest.raises(TryAgainError):
        await redis.eval("return redis.call('EXISTS', unpack(KEYS))", 2, stream, other)
    publishing = asyncio.ensure_future(client.publish_many([change(uri) for uri in uris]))
    await asyncio.sleep(0)
    assert not publishing.done()
    await cluster.move_keys(stream, target)
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.eval("return 1", 2, stream, NAMES.seen("docs", "absent", 1))
        pipeline.xadd(stream, {"event": "must not overtake"})
        errors = await pipeline.execute(raise_on_error=False)
    assert [type(error) for error in errors] == [TryAgainError] * 2
    await cluster.end_move(stream, target)
    receipts = await publishing
    ids = [entry.id for entry in await read_stream(redis, stream)][1:]
    assert ids == [LogPosition.from_token(receipt.token).entry_id for receipt in receipts]


async def test_scripts_are_loaded_where_they_run(client: Client, redis: Redis) -> None:
    """Publishing works after all nodes have lost their scripts."""
    for node in await primaries_of(redis):
        await node.script_flush()
    receipts = await client.publish_many([change(f"{number}.md") for number in range(20)])
    assert {LogPosition.from_token(one.token).partition for one in receipts} == set(range(6))
    backlog = await read_backlog(redis, NAMES)
    assert sum(stream.length for stream in backlog if stream.topic is Topic.CHANGED_LIVE) == 20


async def test_outcomes_of_all_partitions(client: Client, redis: Redis) -> None:
    """A publisher gets the outcomes of its changes from all nodes."""
    receipts = await client.publish_many([change(f"{number}.md") for number in range(12)])
    waiting = asyncio.ensure_future(client.wait(receipts, PATIENCE))
    await Outcomes(redis, NAMES).publish([indexed(receipt) for receipt in receipts])
    assert (await waiting).keys() == {receipt.token for receipt in receipts}


async def test_purge_finds_keys_on_their_nodes(redis: Redis) -> None:
    """A purge deletes entries of all nodes, and rewrites the files of each."""
    for partition in range(NAMES.partitions):
        stream = NAMES.stream(Topic.CHANGED_LIVE, partition)
        await redis.xadd(stream, {"event": change("a.md").to_bytes()})
        await redis.set(NAMES.replied("q", partition), b"1")
    deleted = await StreamPurge(redis, NAMES).delete(PurgeTargets("docs"))
    assert deleted == NAMES.partitions
    assert "log" in await rewrite_files(redis, PATIENCE)


async def test_users_exist_on_every_node(cluster: RedisCluster, redis: Redis) -> None:
    """Each node knows the users, also replicas, and roles can do their work over all nodes."""
    doors = await open_doors(cluster.url)
    assert await save_users(redis)
    async with connect(doors.url(Role.WORKER)) as worker:
        assert len(await nodes_of(worker)) == 6
        for node in await nodes_of(worker):
            await node.ping()
        assert (await check_server(worker)).version >= (6, 2)
        assert len(await read_backlog(worker, NAMES)) == 36
    publisher = Client.connect(doors.url(Role.PUBLISHER), partitions=NAMES.partitions)
    async with publisher:
        await publisher.publish_many([change(f"{number}.md") for number in range(12)])
    wrong = doors.url(Role.PUBLISHER).replace("no-secret", "wrong-secret")
    async with connect(wrong) as stranger:
        with pytest.raises(ConfigurationError, match="refused the credentials"):
            await check_server(stranger)
    async with connect(doors.url(Role.PUBLISHER)) as publishing:
        with pytest.raises(ConfigurationError, match="denied"), redis_errors():
            await publishing.xdel(NAMES.stream(Topic.CHANGED_LIVE), "1-1")


async def test_checks_are_of_every_node(cluster: RedisCluster, redis: Redis) -> None:
    """The fullest primary counts for the memory, and the worst node for each condition."""
    conditions = {one.name: one for one in check_redis(await redis_facts(redis))}
    assert conditions["redis.cluster"].state is State.OK, conditions["redis.cluster"]
    assert conditions["redis.cluster"].detail == "3 primaries, 3 replicas"
    assert await redis_clock(redis) > 0
    full = (await cluster.primaries())[1]
    try:
        await full.run("CONFIG", "SET", "maxmemory", 10**8)
        assert (await read_memory(redis)).limit_bytes == 10**8
        await full.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        with pytest.raises(ConfigurationError, match="allkeys-lru"):
            await check_server(redis)
        conditions = {one.name: one for one in check_redis(await redis_facts(redis))}
        assert conditions["redis.eviction"].detail.startswith(f"127.0.0.1:{full.port}: allkeys-lru")
    finally:
        await full.run("CONFIG", "SET", "maxmemory", 0)
        await full.run("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_the_doctor_names_a_node_without_our_user(
    cluster: RedisCluster, redis: Redis
) -> None:
    """A replica that joined after the users were created refuses them once it is a primary."""
    doors = await open_doors(cluster.url)
    replica = await cluster.replica_of((await cluster.primaries())[0])
    await replica.run("ACL", "DELUSER", user_name(Role.OPERATOR, NAMES.prefix))
    async with connect(doors.url(Role.OPERATOR)) as operator:
        with pytest.raises(ConfigurationError, match=f":{replica.port}: Redis refused") as refused:
            await redis_facts(operator)
    assert "headrace access" in refused.value.remedy
    doors = await open_doors(cluster.url)
    async with connect(doors.url(Role.OPERATOR)) as operator:
        assert len(await redis_facts(operator)) == 6


async def test_urls_name_the_right_kind_of_server(cluster: RedisCluster, redis_url: str) -> None:
    """One node is not taken for a server, nor a server for a cluster; a dead seed does no harm."""
    async with connect(f"redis://127.0.0.1:{cluster.nodes[0].port}") as node:
        with pytest.raises(ConfigurationError, match="one node of a cluster"), redis_errors():
            await asyncio.gather(*(node.get(key) for key in KEYS))
    async with connect(redis_url.replace("redis://", "redis+cluster://")) as server:
        with pytest.raises(ConfigurationError, match="not a node of a cluster"):
            await check_server(server)
    async with connect("redis+cluster://127.0.0.1:1") as nothing:
        with pytest.raises(Unavailable):
            await check_server(nothing)
    async with connect(cluster.url.replace("//", "//127.0.0.1:1,")) as partly:
        await eventually(partly.ping, "another node answers")


async def test_failover_is_noticed_by_checks_alone(cluster: RedisCluster, redis: Redis) -> None:
    """A client that only looks at the memory finds the new primary."""
    await read_memory(redis)
    node = (await cluster.primaries())[2]
    node.kill()
    try:
        with pytest.raises(Unavailable):
            await read_memory(redis)

        async def is_served() -> bool:
            with suppress(Unavailable):
                return bool(await read_memory(redis))
            return False

        await eventually(is_served, "the memory of the new primary is read", timeout=30)
    finally:
        node.start()
        await eventually(cluster.is_whole, "the cluster is whole", timeout=30)


async def test_members_that_no_slots_name_are_known(cluster: RedisCluster, redis: Redis) -> None:
    """A replica that is down is missing among the nodes, so its address is given."""
    assert await unlisted_members(redis) == []
    replica = await cluster.replica_of((await cluster.primaries())[1])
    replica.kill()
    try:

        async def is_missed() -> bool:
            return await unlisted_members(redis) == [f"127.0.0.1:{replica.port}"]

        async def is_unlisted() -> bool:  # each look asks another node, which hears of it later
            return len(await nodes_of(redis)) == 5

        await eventually(is_missed, "the replica is missing", timeout=30)
        await eventually(is_unlisted, "the replica is not among the nodes", timeout=30)
    finally:
        replica.start()
        await eventually(cluster.is_whole, "the cluster is whole", timeout=30)
    assert await unlisted_members(redis) == []


async def test_a_server_has_no_unlisted_members(redis_url: str) -> None:
    async with connect(redis_url) as server:
        assert await unlisted_members(server) == []
