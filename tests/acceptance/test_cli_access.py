"""Users for each role: one command makes them, and each role works with its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from events.server.acl import Role
from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.cli import Cli, environment_of
from tests.support.crashable_redis import CrashableRedis, redis_binaries
from tests.support.databases import Database
from tests.support.processes import WorkerProcess

GIVEN = "a-password-of-its-own"


@pytest.fixture
async def own_redis(tmp_path: Path) -> AsyncIterator[CrashableRedis]:
    """A server for one test, so that no other test sees its users."""
    server = CrashableRedis(redis_binaries()[-1], tmp_path)
    await server.start()
    yield server
    server.kill()


@pytest.fixture
def admin(own_redis: CrashableRedis, database: Database, tmp_path: Path) -> Cli:
    """Command line of the administrator."""
    environment = environment_of(own_redis.url, database, tmp_path / "home")
    return Cli({**environment, "HEADRACE_MODEL": HASHING_MODEL})


async def made(admin: Cli, *arguments: str, **environment: str) -> dict[str, dict[str, Any]]:
    """Report of ``headrace access`` by role."""
    result = await admin("access", *arguments, "--json", **environment)
    assert result.code == 0, result
    return {one["role"]: one for one in result.json["roles"]}


def as_role(admin: Cli, access: dict[str, Any]) -> Cli:
    """Command line of one role, without the owner's URL."""
    servers = {
        "HEADRACE_REDIS_URL": access["redis_url"],
        "HEADRACE_DATABASE_URL": access["database_url"],
        "HEADRACE_OWNER_DATABASE_URL": "",
    }
    return Cli({**admin.environment, **servers})


async def test_each_role_works_by_its_own_user(
    admin: Cli, own_redis: CrashableRedis, database: Database, tmp_path: Path
) -> None:
    """Each role works with its own users, and is refused the work of another."""
    roles = await made(admin.typed)
    assert {one["password_is"] for one in roles.values()} == {"generated"}
    publisher, worker, answerer, operator = (
        as_role(admin, roles[role]) for role in ("publisher", "worker", "answerer", "operator")
    )
    indexing = WorkerProcess(own_redis.url, database, worker.environment, "--only", "indexer")
    answering = WorkerProcess(own_redis.url, database, answerer.environment, "--only", "answerer")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "big.md").write_text("# Wheel\n\nThe wheel turns.\n" * 20_000)
    async with indexing, answering:
        synced = await publisher(
            "sync", str(tmp_path / "docs"), "--project", "mill", "--wait", "--json"
        )
        assert synced.json["indexed"] == 1, synced
        answer = await publisher("ask", "wheel turns", "--project", "mill", "--json")
        assert answer.json["results"][0]["citation"]["uri"] == "big.md"
        assert "Redis denied permission: " in (await publisher("dead", "list")).line
        refused = await worker("replay", "--project", "mill")
        assert "permission denied for table generations" in refused.last_line
        assert (await operator("status", "--json")).json["projects"][0]["documents"] == 1


async def test_passwords_are_made_once_and_given_ones_are_taken(admin: Cli, tmp_path: Path) -> None:
    """A password is printed only when it is made, and a new password replaces the old one."""
    first = await made(admin)
    (tmp_path / "operator").write_text(f"{GIVEN}\n")
    again = await made(admin, "--passwords", str(tmp_path), HEADRACE_WORKER_PASSWORD=GIVEN)
    assert {role: one["password_is"] for role, one in again.items()} == {
        "publisher": "kept",
        "answerer": "kept",
        "worker": "given",
        "operator": "given",
        "gateway": "kept",
    }
    assert "_url" not in str(again)
    assert GIVEN not in str(again)
    old = as_role(admin, first["operator"])
    assert "refused the credentials" in (await old("dead", "list")).line
    url = old.environment["HEADRACE_REDIS_URL"]
    password = url.partition(f"_{Role.OPERATOR}:")[2].partition("@")[0]
    new = Cli({**old.environment, "HEADRACE_REDIS_URL": url.replace(password, GIVEN)})
    assert (await new("dead", "list")).code == 0


async def test_access_that_cannot_be_made(admin: Cli) -> None:
    """The error names the wrong setting."""
    refused = {
        "HEADRACE_OWNER_DATABASE_URL": "",
        "HEADRACE_WORKER_PASSWORD": "short",
        "HEADRACE_OPERATOR_PASSWORD": "twelve blanks in it",
        "HEADRACE_PASSWORDS_DIRECTORY": "a-directory-that-is-not-there",
    }
    for name, value in refused.items():
        assert name in (await admin("access", **{name: value})).line
    no_owner = admin.environment["HEADRACE_DATABASE_URL"]
    line = (await admin("access", HEADRACE_OWNER_DATABASE_URL=no_owner)).line
    assert "name a superuser in HEADRACE_OWNER_DATABASE_URL" in line
