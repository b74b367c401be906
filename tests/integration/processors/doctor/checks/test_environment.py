"""Environment checks of the doctor, on real servers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from redis.asyncio import Redis

from processors.doctor.checks.environment import Environment
from processors.doctor.findings import Condition, State
from processors.embedders.registry import ModelOptions
from runtime.settings import LOCAL_MODEL
from tests.support.databases import Database


@pytest.fixture
def environment(redis_url: str, database: Database, tmp_path: Path) -> Environment:
    """Environment without problems."""
    return Environment(
        redis_url=redis_url,
        database_url=database.worker_url,
        worker_role="headrace_worker",
        replica_url="",
        home=tmp_path / "home",
        archive_url=str(tmp_path / "archive"),
        models=[LOCAL_MODEL],
        options=ModelOptions(),
    )


async def decision(environment: Environment, **changes: object) -> dict[str, Condition]:
    """Conditions by name."""
    found = await dataclasses.replace(environment, **changes).decide()  # type: ignore[arg-type]
    return {condition.name: condition for condition in found}


@pytest.mark.usefixtures("synced_writes")
async def test_a_sound_environment(environment: Environment) -> None:
    """A sound environment has no problem, and each condition has its own name."""
    found = await environment.decide()
    assert [one for one in found if one.state is not State.OK] == []
    names = [one.name for one in found]
    assert len(names) == len(set(names))
    assert {name.partition(".")[0] for name in names} == {
        "redis",
        "postgres",
        "clocks",
        "model",
        "archive",
        "disk",
        "python",
        "packages",
    }


async def test_more_rights_than_needed_are_noted(
    environment: Environment, database: Database
) -> None:
    """Users with all rights are noted and are not a problem."""
    assert "has all rights" in (await decision(environment))["redis.user"].detail
    found = await decision(environment, database_url=database.owner_url)
    assert found["postgres.role"].state is State.OK
    assert "is a superuser" in found["postgres.role"].detail
    assert "superuser" not in (await decision(environment))["postgres.role"].detail


async def test_servers_that_cannot_be_reached(environment: Environment) -> None:
    """Unreachable servers are problems, and the other checks still run."""
    found = await decision(
        environment,
        redis_url="redis://127.0.0.1:1/0",
        database_url="postgresql://headrace_worker@127.0.0.1:1/none",
    )
    for name in ("redis", "postgres"):
        assert found[name].state is State.PROBLEM
        assert "can't be reached" in found[name].detail
    assert found["archive.storage"].state is State.OK


async def test_a_policy_that_evicts(environment: Environment) -> None:
    """An evicting memory policy is a problem with a remedy."""
    async with Redis.from_url(environment.redis_url) as redis:
        await redis.config_set("maxmemory-policy", "allkeys-lru")
        try:
            found = await decision(environment)
        finally:
            await redis.config_set("maxmemory-policy", "noeviction")
    assert found["redis.eviction"].state is State.PROBLEM
    assert "noeviction" in found["redis.eviction"].remedy


async def test_the_owner_in_place_of_a_worker(environment: Environment, database: Database) -> None:
    """A role that row-level security does not restrict is a problem."""
    found = await decision(environment, database_url=database.owner_url, worker_role="")
    role = found["postgres.role"]
    assert role.state is State.PROBLEM
    assert "owns tables" in role.detail
    assert "HEADRACE_WORKER_ROLE" in role.remedy


async def test_a_database_that_was_never_migrated(
    environment: Environment, database: Database
) -> None:
    """The remedy is the command that migrates."""
    url = database.owner_url.replace(f"/{database.name}", "/postgres")
    found = await decision(environment, database_url=url, worker_role="")
    assert "headrace migrate" in found["postgres.schema"].remedy
    assert "headrace migrate" in found["postgres.pgvector"].remedy


async def test_a_remote_model_without_its_key(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing key is a problem; with a key there is none."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = "openai/text-embedding-3-small@256"
    found = await decision(environment, models=[model])
    condition = found[f"model.{model}"]
    assert condition.state is State.PROBLEM
    assert "OPENAI_API_KEY" in condition.remedy
    keyed = await decision(environment, models=[model], options=ModelOptions(api_key="key"))
    assert keyed[f"model.{model}"].state is State.OK


async def test_weights_that_are_not_there(environment: Environment, tmp_path: Path) -> None:
    """Missing weights are a problem, found without starting the model."""
    options = ModelOptions(directory=tmp_path)
    condition = (await decision(environment, options=options))[f"model.{LOCAL_MODEL}"]
    assert condition.state is State.PROBLEM
    assert "model.safetensors" in condition.detail


async def test_an_archive_that_cannot_be_written(environment: Environment, tmp_path: Path) -> None:
    """The detail contains the path of the archive."""
    (tmp_path / "file").write_text("not a directory")
    url = str(tmp_path / "file" / "archive")
    condition = (await decision(environment, archive_url=url))["archive.storage"]
    assert condition.state is State.PROBLEM
    assert url in condition.detail
