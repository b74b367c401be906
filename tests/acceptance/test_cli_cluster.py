"""Every command on a Redis Cluster, with a user for each role."""

from __future__ import annotations

from pathlib import Path

from headrace import BlockingClient
from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.cli import Cli, Result, environment_of
from tests.support.databases import Database
from tests.support.gateways import gateway
from tests.support.processes import WorkerProcess
from tests.support.redis_cluster import RedisCluster
from tests.support.waiting import eventually


async def test_commands_work_on_a_cluster(
    cluster: RedisCluster, database: Database, tmp_path: Path
) -> None:
    """Documents of all partitions are indexed, found, examined and purged."""
    admin = Cli(
        environment_of(cluster.url, database, tmp_path / "home")
        | {"HEADRACE_MODEL": HASHING_MODEL, "HEADRACE_PARTITIONS": "6"}
    )
    access = await admin("access", "--json")
    assert (access.json["saved"], access.json["nodes_without_users"]) == (True, []), access
    urls = {
        one["role"]: {
            "HEADRACE_REDIS_URL": one["redis_url"],
            "HEADRACE_DATABASE_URL": one["database_url"],
        }
        for one in access.json["roles"]
    }
    assert urls["worker"]["HEADRACE_REDIS_URL"].startswith("redis+cluster://headrace_worker:")
    worker, publisher, operator = (
        Cli({**admin.environment, **urls[role], "HEADRACE_OWNER_DATABASE_URL": owner_url})
        for role, owner_url in {
            "worker": "",
            "publisher": "",
            "operator": database.owner_url,
        }.items()
    )
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number}.md").write_text(f"# Wheel {number}\n\nThe wheel turns.\n")
    async with WorkerProcess(
        worker.environment["HEADRACE_REDIS_URL"], database, worker.environment
    ):
        synced = await publisher("sync", str(folder), "--project", "mill", "--wait", "--json")
        assert synced.json["indexed"] == 12, synced
        answer = await publisher("ask", "wheel turns", "--project", "mill", "--json")
        assert answer.json["results"], answer
        status = await operator("status", "--json")
        assert status.json["redis"].endswith("cluster of 3 primaries"), status
        assert status.json["projects"][0]["documents"] == 12
        assert len(status.json["workers"]) == 1
        doctor = await _examined(operator)
        conditions = {one["name"]: one for one in doctor.json["environment"]}
        assert conditions["redis.cluster"]["detail"] == "3 primaries, 3 replicas", doctor
        assert conditions["redis.cluster"]["state"] == "ok"
        assert all(project["findings"] == [] for project in doctor.json["projects"]), doctor
        assert (await operator("dead", "list", "--json")).code == 0
        replayed = await operator("replay", "--project", "mill", "--json")
        assert replayed.code == 0, replayed
        async with (
            gateway(
                urls["gateway"]["HEADRACE_REDIS_URL"], database, partitions=6, home=tmp_path
            ) as door,
            door.client("mill") as http,
        ):
            put = await http.put("document", params={"uri": "put.md"}, content=b"The mill stands.")
            assert put.status_code == 202, put.text
            found = await http.post("ask", json={"text": "mill", "min_event": put.json()["token"]})
            uris = [result["citation"]["uri"] for result in found.json()["results"]]
            assert "put.md" in uris, found.text
        purged = await admin("document", "purge", "0.md", "-p", "mill", "--yes", "--json")
        assert purged.code == 0, purged


async def test_access_names_the_nodes_that_it_missed(
    cluster: RedisCluster, database: Database, tmp_path: Path
) -> None:
    """A replica that is down gets no users; it is named until it is back."""
    admin = Cli(environment_of(cluster.url, database, tmp_path / "home"))
    replica = await cluster.replica_of((await cluster.primaries())[0])
    replica.kill()
    address = f"127.0.0.1:{replica.port}"

    async def is_named() -> bool:
        access = await admin("access", "--json")
        return access.code == 0 and access.json["nodes_without_users"] == [address]

    await eventually(is_named, "the replica is named", timeout=30)
    assert f"{address} did not get the users" in (await admin("access")).stderr
    replica.start()
    await eventually(cluster.is_whole, "the cluster is whole", timeout=30)
    assert (await admin("access", "--json")).json["nodes_without_users"] == []


def test_blocking_client(cluster: RedisCluster) -> None:
    """A program without a loop publishes to the cluster."""
    with BlockingClient.connect(cluster.url, prefix="apart", partitions=6) as client:
        receipts = [client.upsert("mill", f"{number}.md", "text") for number in range(9)]
    assert len({receipt.token.split(":")[1] for receipt in receipts}) > 1


async def _examined(operator: Cli) -> Result:
    """Examine the index when all six servers answer in time; a failure has its last report."""
    looks: list[Result] = []

    async def all_answer() -> bool:
        looks.append(await operator("doctor", "--project", "mill", "--json"))
        conditions = looks[-1].json["environment"]
        return any(condition["name"] == "redis.cluster" for condition in conditions)

    try:
        await eventually(all_answer, "all six servers answer the doctor in time", timeout=30)
    except AssertionError as error:
        error.add_note(f"last look: {looks[-1:]}")
        raise
    return looks[-1]
