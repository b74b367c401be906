"""``headrace access``: Redis users, Postgres roles and passwords for each kind of process."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import typer
from redis.asyncio import Redis

from events.server.acl import (
    Role,
    hash_of,
    password_hashes,
    put_user,
    save_users,
    user_name,
    user_rules,
)
from events.server.cluster import nodes_of, unlisted_members
from events.server.connection import check_server, redis_errors
from gateway.clients import open_redis
from gateway.output import print_json, stderr
from gateway.servers import configured
from gateway.session import JsonOption, run_client
from runtime.errors import ConfigurationError
from runtime.settings import Settings
from store.postgres.roles import set_passwords

__all__ = ["command", "configured_password", "generated_password"]

_NOT_SAVED = (
    "Redis has no ACL file and no configuration file to keep its users in; "
    "run this again after each restart of Redis"
)
_USER_PARAMETERS = frozenset({"user", "username", "password", "passfile"})
_OPEN = "Redis accepts the user `default` without a password; set `requirepass`"
_MISSED = (
    "{} did not get the users: these nodes of the cluster are down, or have neither slots nor a "
    "primary yet; run this again when they are back"
)

_VALID_PASSWORD = re.compile(r"[!-~]{12,128}")
_GENERATED_BYTES = 24


@dataclass(frozen=True)
class Access:
    """Credentials of one role. ``password`` is None if the existing one is kept."""

    role: Role
    redis_user: str
    postgres_role: str
    origin: Literal["given", "generated", "kept"]
    password: str | None


@dataclass(frozen=True)
class _Grants:
    accesses: Sequence[Access]
    urls: tuple[str, str]
    saved: bool
    is_open: bool
    missed: Sequence[str]
    """Addresses of members of the cluster that did not get the users."""


def command(
    passwords: Annotated[
        Path | None,
        typer.Option(
            "--passwords",
            metavar="DIRECTORY",
            envvar="HEADRACE_PASSWORDS_DIRECTORY",
            help="Directory of files with passwords, each named after its role.",
        ),
    ] = None,
    rotate: Annotated[
        bool,
        typer.Option("--rotate", help="Generate new passwords for roles without a configured one."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Create a user for each role, with least privilege; update the rights of existing users.

    Roles are publisher, answerer, worker, operator and gateway. The password of a role is taken
    from HEADRACE_<ROLE>_PASSWORD, or from its file in the directory of --passwords. Otherwise it is
    generated, and printed only this once.
    """
    grants = run_client(lambda settings: _grant(settings, passwords, rotate=rotate))
    if not grants.saved:
        stderr().print(_NOT_SAVED)
    if grants.is_open:
        stderr().print(_OPEN)
    if grants.missed:
        stderr().print(_MISSED.format(", ".join(grants.missed)))
    if json:
        print_json(
            {
                "roles": [_plain(access, grants.urls) for access in grants.accesses],
                "saved": grants.saved,
                "nodes_without_users": grants.missed,
            }
        )
        return
    for access in grants.accesses:
        _print(_plain(access, grants.urls))


async def _grant(settings: Settings, passwords: Path | None, *, rotate: bool) -> _Grants:
    servers = configured(settings)
    if servers is None or not servers.owner_database_url:
        raise ConfigurationError(
            "HEADRACE_REDIS_URL or HEADRACE_OWNER_DATABASE_URL is not set",
            "set the first to Redis as an administrator, the second to Postgres as the owner of "
            "the tables",
        )
    async with open_redis(servers) as redis:
        version = (await check_server(redis)).version
        # first: a node that comes up later may lack users, too
        with redis_errors():
            missed = await unlisted_members(redis)
        accesses = [await _access(servers, redis, role, passwords, rotate=rotate) for role in Role]
        changed = {access.postgres_role: access.password for access in accesses if access.password}
        await set_passwords(servers.owner_database_url, changed)
        for access in accesses:
            rules = user_rules(access.role, servers.stream_prefix, version)
            await put_user(redis, access.redis_user, rules, await _hashes(redis, access))
        # `up` rewrites the configuration of its own Redis at every start
        saved = bool(settings.redis_url) and await save_users(redis)
        is_open = await _has_open_default_user(redis)
    urls = servers.redis_url, servers.owner_database_url
    return _Grants(accesses, urls, saved, is_open, missed)


async def _access(
    settings: Settings, redis: Redis, role: Role, passwords: Path | None, *, rotate: bool
) -> Access:
    name, postgres_role = user_name(role, settings.stream_prefix), f"headrace_{role}"
    if password := configured_password(role, passwords):
        return Access(role, name, postgres_role, "given", password)
    if not rotate and await password_hashes(redis, name):
        return Access(role, name, postgres_role, "kept", None)
    return Access(role, name, postgres_role, "generated", generated_password())


async def _hashes(redis: Redis, access: Access) -> list[str]:
    if access.password is None:
        return await password_hashes(redis, access.redis_user)
    return [hash_of(access.password)]


async def _has_open_default_user(redis: Redis) -> bool:
    users: list[Any] = [await node.acl_getuser("default") for node in await nodes_of(redis)]
    return any(user is not None and {"on", "nopass"} <= set(user["flags"]) for user in users)


def _plain(access: Access, urls: tuple[str, str]) -> dict[str, Any]:
    """Fields to print; only a generated password is included."""
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
    """Replace the user of a URL.

    User parameters in the query are dropped: they would take precedence or reveal a password.
    """
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


def configured_password(role: Role, directory: Path | None) -> str:
    """Read the password of a role from its variable, else its file; empty if neither is given.

    Raises:
        ConfigurationError: the password has the wrong length or invalid characters, its file
            can't be read, or the directory does not exist.
    """
    origin = f"HEADRACE_{role.upper()}_PASSWORD"
    password = os.environ.get(origin, "")
    if not password and directory is not None:
        file = directory / role
        origin = str(file)
        if not directory.is_dir():
            raise ConfigurationError(
                f"--passwords (HEADRACE_PASSWORDS_DIRECTORY): {directory} is not a directory",
                "create it, or leave the option out",
            )
        try:
            password = file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{file} can't be read: {error}") from None
    if password and _VALID_PASSWORD.fullmatch(password) is None:
        raise ConfigurationError(f"{origin} must have 12 to 128 ASCII characters and no spaces")
    return password


def generated_password() -> str:
    """Generate a password that needs no escaping in URLs."""
    return secrets.token_urlsafe(_GENERATED_BYTES)
