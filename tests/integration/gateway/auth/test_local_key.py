"""Key of the user of ``headrace up``."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gateway.auth.callers import Right
from gateway.auth.local_key import local_key, stored_key
from runtime.settings import Settings
from store.keys.api_keys import ApiKey, ApiKeys
from tests.support.api_keys import opened_gateway, register
from tests.support.databases import Database


@pytest.fixture
def settings(database: Database, tmp_path: Path) -> Settings:
    """Settings of ``up`` with a home that does not exist."""
    return Settings(home=tmp_path / "home", database_url=database.operator_url)


async def test_a_key_is_made_once_and_only_its_user_may_read_it(
    settings: Settings, database: Database
) -> None:
    """The key has all rights in all projects, and the next `up` uses it again."""
    assert stored_key(settings) is None
    token = await local_key(settings)
    assert await local_key(settings) == token == stored_key(settings)
    file = settings.home_directory / "api-key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = ApiKey.parse(token)
    assert key is not None
    async with opened_gateway(database) as gateway:
        admitted = await ApiKeys(gateway).admit(key.id, key.digest)
    assert admitted is not None
    assert admitted.project is None
    assert admitted.rights == frozenset(right.value for right in Right)
    assert (admitted.requests_per_minute, admitted.bytes_per_minute) == (0, 0)


@pytest.mark.parametrize("damage", ["retired", "garbage", "of another database"])
async def test_a_key_that_does_not_work_is_replaced(
    settings: Settings, database: Database, damage: str
) -> None:
    """One `up` is enough to have a valid key again."""
    token = await local_key(settings)
    file = settings.home_directory / "api-key"
    if damage == "retired":
        async with register(database) as keys:
            await keys.retire(token.split("_")[1])
    else:
        file.write_text("garbage\xff" if damage == "garbage" else ApiKey.new().text)
    renewed = await local_key(settings)
    assert renewed not in (token, "")
    assert await local_key(settings) == renewed == stored_key(settings)
