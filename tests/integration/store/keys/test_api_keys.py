"""Register of API keys, and the function that admits them."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest

from runtime.errors import ConfigurationError, NotFound, UsageError
from store.generations.catalog import Projects
from store.keys.api_keys import ApiKey, ApiKeys, NewApiKey
from store.purge.projects import DeletedProjects
from tests.support.api_keys import add_key, gateway_url, opened_gateway, register
from tests.support.databases import Database
from tests.support.waiting import eventually
from tests.support.writes import opened


async def test_a_key_is_admitted_with_its_properties(database: Database) -> None:
    """Project, agent, rights and limits are those that the key was added with."""
    key = await add_key(database, "alpha", {"ask", "publish"}, agent="ann", requests_per_minute=7)
    of_operator = await add_key(database, None, {"operate"}, bytes_per_minute=0)
    async with opened_gateway(database) as gateway:
        keys = ApiKeys(gateway)
        admitted = await keys.admit(key.id, key.digest)
        assert admitted is not None
        assert (admitted.project, admitted.agent) == ("alpha", "ann")
        assert admitted.rights == {"ask", "publish"}
        assert (admitted.requests_per_minute, admitted.bytes_per_minute) == (7, None)
        admitted = await keys.admit(of_operator.id, of_operator.digest)
        assert admitted is not None
        assert (admitted.project, admitted.bytes_per_minute) == (None, 0)


async def test_only_a_valid_key_is_admitted(database: Database) -> None:
    """A wrong secret or id, an expired or retired key, and a deleted project are refused."""
    key, retired = [await add_key(database, "alpha") for _ in range(2)]
    expiring = await add_key(database, "alpha", lifetime=timedelta(milliseconds=1))
    of_deleted = await add_key(database, "doomed")
    async with opened(database.operator_url) as operator:
        projects = DeletedProjects(operator)
        await projects.retire(await Projects(operator).require("doomed"))
    async with register(database) as keys:
        await keys.retire(retired.id)
    async with opened_gateway(database) as gateway:
        api_keys = ApiKeys(gateway)

        async def is_refused() -> bool:
            return await api_keys.admit(expiring.id, expiring.digest) is None

        await eventually(is_refused, "the key has expired")
        for refused in (retired, of_deleted, ApiKey(key.id, ApiKey.new().secret), ApiKey.new()):
            assert await api_keys.admit(refused.id, refused.digest) is None
        assert await api_keys.admit(key.id, key.digest) is not None


async def test_the_register_lists_keys_and_their_use(database: Database) -> None:
    """The use of a key is noted to the minute; a wrong secret is not. Digests are not listed."""
    first, second = await add_key(database, "alpha"), await add_key(database, "beta")
    async with opened_gateway(database) as gateway:
        await ApiKeys(gateway).admit(first.id, first.digest)
        await ApiKeys(gateway).admit(second.id, first.digest)
    async with register(database) as keys:
        listed = await keys.list()
        assert [record.key_id for record in listed] == [first.id, second.id]
        used, unused = (record.last_used_at for record in listed)
        assert used is not None
        assert (used.second, used.microsecond, unused) == (0, 0, None)
        assert [record.key_id for record in await keys.list("beta")] == [second.id]
        assert first.digest.hex() not in str(listed)
        with pytest.raises(UsageError, match="no project 'gamma'"):
            await keys.list("gamma")


async def test_a_key_is_retired_once(database: Database) -> None:
    key = await add_key(database, "alpha")
    async with register(database) as keys:
        await keys.retire(key.id)
        with pytest.raises(NotFound, match="no active API key"):
            await keys.retire(key.id)
        assert [record.retired_at is not None for record in await keys.list()] == [True]


async def test_a_key_of_one_project_does_not_operate(database: Database) -> None:
    """Dead letters and streams belong to all projects."""
    async with register(database) as keys:
        with pytest.raises(UsageError, match="can't have the right to operate"):
            await keys.add(ApiKey.new(), NewApiKey("alpha", frozenset({"operate"})))
        assert await keys.list() == []


async def test_a_gateway_can_neither_add_nor_read_keys(database: Database) -> None:
    """The functions of the register are refused, and the table has no rows for a careless grant."""
    key = await add_key(database, "alpha")
    async with opened_gateway(database) as gateway:
        keys = register(database)
        async with keys as of_operator:
            of_operator._database = gateway
            with pytest.raises(ConfigurationError, match="permission denied"):
                await of_operator.list()
            with pytest.raises(ConfigurationError, match="permission denied"):
                await of_operator.retire(key.id)
    owner = await asyncpg.connect(database.owner_url)
    await owner.execute("grant select on api_keys to headrace_gateway")
    connection = await asyncpg.connect(gateway_url(database))
    try:
        assert await connection.fetch("select * from api_keys") == []
        assert await owner.fetchval("select count(*) from api_keys") == 1
    finally:
        await connection.close()
        await owner.close()
