"""``headrace access``: a user in Redis and a role in Postgres for each kind of process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import typer
from redis.asyncio import Redis

from events.access import (
    Role,
    hash_of,
    password_hashes,
    put_user,
    save_users,
    user_name,
    user_rules,
)
from events.connection import check_server
from gateway.clients import open_redis
from gateway.output import print_json, stderr
from gateway.passwords import generated_password, given_password
from gateway.session import JsonOption, run_client
from gateway.stack import configured
from runtime.errors import ConfigurationError
from runtime.settings import Settings
from store.roles import set_passwords

__all__ = ["command"]

_NOT_SAVED = (
    "Redis has neither an ACL file nor a configuration file that keeps users: "
    "run this again whenever it has restarted"
)
_USER_PARAMETERS = frozenset({"user", "username", "password", "passfile"})
_OPEN = "Redis lets everybody in as the user `default`, without a password: set `requirepass`"


@dataclass(frozen=True)
class Access:
    """How one role gets in. ``password`` None: it stays what it was."""

    role: Role
    redis_user: str
    postgres_role: str
    origin: Literal["given", "generated", "kept"]
    password: str | None


@dataclass(frozen=True)
class _Found:
    accesses: Sequence[Access]
    urls: tuple[str, str]
    saved: bool
    is_open: bool


def command(
    rotate: Annotated[
        bool, typer.Option("--rotate", help="New passwords where none are given, too.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Make a user for each role, with the least rights; again: bring them to this version's.

    A role: publisher, answerer, worker, operator. Its password is HEADRACE_<ROLE>_PASSWORD, or a
    file of that role's name in HEADRACE_PASSWORDS_DIRECTORY; otherwise one is made at first and
    printed this once.
    """
    found = run_client(lambda settings: _grant(settings, rotate=rotate))
    if not found.saved:
        stderr().print(_NOT_SAVED)
    if found.is_open:
        stderr().print(_OPEN)
    if json:
        print_json(
            {"roles": [_plain(one, found.urls) for one in found.accesses], "saved": found.saved}
        )
        return
    for access in found.accesses:
        _print(_plain(access, found.urls))


async def _grant(settings: Settings, *, rotate: bool) -> _Found:
    servers = configured(settings)
    if servers is None or not servers.owner_database_url:
        raise ConfigurationError(
            "set HEADRACE_REDIS_URL to Redis as a user who may do everything, and "
            "HEADRACE_OWNER_DATABASE_URL to Postgres as the owner of the tables"
        )
    async with open_redis(servers) as redis:
        version = (await check_server(redis)).version
        accesses = [await _access(servers, redis, role, rotate=rotate) for role in Role]
        changed = {one.postgres_role: one.password for one in accesses if one.password}
        await set_passwords(servers.owner_database_url, changed)
        for access in accesses:
            rules = user_rules(access.role, servers.stream_prefix, version)
            await put_user(redis, access.redis_user, rules, await _hashes(redis, access))
        # `up` writes the configuration of its own Redis anew at every start
        saved = bool(settings.redis_url) and await save_users(redis)
        is_open = await _lets_everybody_in(redis)
    return _Found(accesses, (servers.redis_url, servers.owner_database_url), saved, is_open)


async def _access(settings: Settings, redis: Redis, role: Role, *, rotate: bool) -> Access:
    name, postgres_role = user_name(role, settings.stream_prefix), f"headrace_{role}"
    if password := given_password(settings, role):
        return Access(role, name, postgres_role, "given", password)
    if not rotate and await password_hashes(redis, name):
        return Access(role, name, postgres_role, "kept", None)
    return Access(role, name, postgres_role, "generated", generated_password())


async def _hashes(redis: Redis, access: Access) -> list[str]:
    if access.password is None:
        return await password_hashes(redis, access.redis_user)
    return [hash_of(access.password)]


async def _lets_everybody_in(redis: Redis) -> bool:
    found: Any = await redis.acl_getuser("default")
    return found is not None and {"on", "nopass"} <= set(found["flags"])


def _plain(access: Access, urls: tuple[str, str]) -> dict[str, Any]:
    """As it is printed; a password that was given isn't repeated."""
    plain = {
        "role": access.role.value,
        "redis_user": access.redis_user,
        "postgres_role": access.postgres_role,
        "password_is": access.origin,
    }
    if access.origin != "generated" or access.password is None:
        return plain
    users = (access.redis_user, access.postgres_role)
    redis_url, database_url = (
        _as_user(url, user, access.password) for url, user in zip(urls, users, strict=True)
    )
    return {**plain, "redis_url": redis_url, "database_url": database_url}


def _as_user(url: str, user: str, password: str) -> str:
    """Without what the query says of the former user: it would count, or tell his password."""
    parts = urlsplit(url)
    netloc = f"{quote(user)}:{quote(password)}@{parts.netloc.rpartition('@')[2]}"
    query = [
        (name, value)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
        if name not in _USER_PARAMETERS
    ]
    return parts._replace(netloc=netloc, query=urlencode(query, safe="/")).geturl()


def _print(access: dict[str, Any]) -> None:
    typer.echo(
        f"{access['role']}: Redis user {access['redis_user']}, Postgres role "
        f"{access['postgres_role']}, password {access['password_is']}"
    )
    if "redis_url" in access:
        typer.echo(f"  HEADRACE_REDIS_URL={access['redis_url']}")
        typer.echo(f"  HEADRACE_DATABASE_URL={access['database_url']}")
