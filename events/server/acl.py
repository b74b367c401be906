"""Redis users by role: the commands that each may run, and on which keys.

From Redis 7 each command is tied to its keys (selectors). In Redis 6.2 a user has one list of
commands and one of keys: there a publisher can also read and trim the streams that it writes to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from redis import exceptions
from redis.asyncio import Redis

from events.names import GROUPS, Names, Topic
from events.server.cluster import nodes_of
from events.server.connection import redis_errors

__all__ = [
    "Role",
    "hash_of",
    "password_hashes",
    "put_user",
    "require_reading",
    "save_users",
    "user_name",
    "user_rules",
]

_SELECTORS = (7, 0)


class Role(StrEnum):
    """Role of a process towards the servers."""

    PUBLISHER = "publisher"
    ANSWERER = "answerer"
    WORKER = "worker"
    OPERATOR = "operator"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class _Grant:
    """Commands on keys (after the prefix); ``access``: R or W alone, if Redis supports these."""

    commands: str
    keys: str
    access: str = ""


_SCRIPTS = "eval evalsha"
_LOGS = "{document.*}:changed.live {document.*}:changed.bulk"
_CHUNKED = "{document.*}:chunked.live {document.*}:chunked.bulk"
_QUERIES = "{query.*}:requested"
_JUDGED = "{query.*}:judged"
_DEAD = " ".join(f"{key}.dead" for key in f"{_LOGS} {_CHUNKED} {_QUERIES} {_JUDGED}".split())
_REPLIES = "{query.*}:replies:*"
_SEEN = "{document.*}:seen:*"
_NUMBER = "{document.*}:partitions"

_DEPLOYMENT = "deployment"

_EVERYBODY = "ping info select time acl|whoami script|load cluster|slots asking"

_PUBLISHING = (
    _Grant(_SCRIPTS, f"{_LOGS} {_SEEN} {_NUMBER}"),
    _Grant("xadd", f"{_LOGS} {_QUERIES} {_JUDGED}", "W"),
    _Grant("get set", _SEEN),
    _Grant("get", _NUMBER, "R"),
    _Grant("get", _DEPLOYMENT, "R"),
    _Grant("xread", f"{{document.*}}:outcome {_REPLIES}", "R"),
    _Grant("xtrim unlink", _REPLIES),
    _Grant("xinfo|groups xpending xlen", _LOGS, "R"),
    _Grant("hgetall", "{workers}:state", "R"),
)

_CALLERS = _Grant(f"get set getdel unlink {_SCRIPTS}", "{gateway.*}:*")
"""Rates and sessions of a gateway's callers."""

_CONSUMING = (
    "xreadgroup xgroup|create xgroup|delconsumer xack xclaim xpending xinfo|groups "
    f"xinfo|consumers xrange xrevrange xtrim {_SCRIPTS}"
)

_ENDING = "client|id client|unblock"
"""A consumer ends its own waiting reads when it stops."""

_GRANTS: dict[Role, tuple[_Grant, ...]] = {
    Role.PUBLISHER: _PUBLISHING,
    Role.ANSWERER: (
        _Grant(f"multi exec {_ENDING}", ""),
        _Grant(_CONSUMING, _QUERIES),
        _Grant(_SCRIPTS, f"{_QUERIES} {_REPLIES} {{query.*}}:replied:*"),
        _Grant("xadd", f"{_REPLIES} {{query.*}}:requested.dead", "W"),
        _Grant("exists set", "{query.*}:replied:*"),
        _Grant("pexpire", _REPLIES),
        _Grant("xinfo|groups xpending", _LOGS, "R"),
        _Grant(f"get set pttl {_SCRIPTS}", "{model.*}:*"),
        _Grant("hset hdel hgetall", "{workers}:state"),
        _Grant("get", _DEPLOYMENT, "R"),
    ),
    Role.WORKER: (
        _Grant(
            f"{_CONSUMING} xinfo|stream xsetid multi exec xadd xlen get set exists pexpire pttl "
            "hincrby hset hdel hgetall",
            "*",
        ),
        _Grant(_ENDING, ""),
    ),
    Role.OPERATOR: (
        _Grant(
            "xrange xrevrange xlen xinfo|groups xinfo|consumers xinfo|stream xpending", "*", "R"
        ),
        _Grant("get hgetall pttl", "*", "R"),
        *_PUBLISHING,
        _Grant("xadd", _CHUNKED, "W"),
        _Grant("xdel", _DEAD),
        _Grant(_SCRIPTS, f"{_LOGS} {_CHUNKED} {_QUERIES} {_JUDGED} {_DEAD}"),
        _Grant("xack", _LOGS),
        _Grant(f"get set {_SCRIPTS}", _DEPLOYMENT),
        _Grant("unlink", _NUMBER),
        _CALLERS,
        _Grant("hset hdel", "{replays}:state"),
    ),
    Role.GATEWAY: (*_PUBLISHING, _CALLERS),
}


def user_name(role: Role, prefix: str) -> str:
    """Return the name of a deployment's user; several deployments may share a server."""
    return f"{prefix}_{role}"


def user_rules(role: Role, prefix: str, version: Sequence[int]) -> list[str]:
    """Return the rules of ``ACL SETUSER`` that allow only this role's commands, and no password."""
    beginning = ["reset", "on", "resetchannels", *(f"+{name}" for name in _EVERYBODY.split())]
    grants = _GRANTS[role]
    if tuple(version) >= _SELECTORS:
        return beginning + [_selector(grant, prefix) for grant in grants]
    commands = {f"+{name}" for grant in grants for name in grant.commands.split()}
    keys = {f"~{prefix}:{key}" for grant in grants for key in grant.keys.split()}
    return beginning + sorted(commands) + sorted(keys)


def _selector(grant: _Grant, prefix: str) -> str:
    mark = f"%{grant.access}~" if grant.access else "~"
    commands = [f"+{name}" for name in grant.commands.split()]
    keys = [f"{mark}{prefix}:{key}" for key in grant.keys.split()]
    return f"({' '.join(commands + keys)})"


async def password_hashes(redis: Redis, name: str) -> list[str]:
    """Return the hashes of a user's passwords (SHA-256, hex), as Redis stores them.

    The list is empty if the user does not exist or has no password. Of a cluster, it is that of the
    first node that has the user.

    Raises:
        ConfigurationError: our own user may not read users.
        Unavailable: Redis can't be reached.
    """
    with redis_errors():
        for node in await nodes_of(redis):
            user: Any = await node.acl_getuser(name)
            if user is not None and user["passwords"]:
                return [str(digest).removeprefix("#") for digest in user["passwords"]]
    return []


def hash_of(password: str) -> str:
    """Return the form in which Redis stores a password."""
    return hashlib.sha256(password.encode()).hexdigest()


async def put_user(redis: Redis, name: str, rules: Sequence[str], hashes: Sequence[str]) -> None:
    """Create a user or set its rules, in one step; existing connections stay open.

    Of a cluster, each node gets the user, because none copies its users to another.

    Raises:
        ConfigurationError: our own user may not change users.
        Unavailable: Redis can't be reached.
    """
    passwords = [f"#{digest}" for digest in hashes]
    with redis_errors():
        nodes: Any = await nodes_of(redis)
        for node in nodes:
            await node.execute_command("ACL SETUSER", name, *rules, *passwords)


async def require_reading(redis: Redis, names: Names, topics: Iterable[Topic]) -> None:
    """Check that our user may read topics by their groups, and that the groups exist.

    A reader would wait for permission, as it does for a Redis that has lost its users.

    Raises:
        ConfigurationError: our user may not read them.
        Unavailable: Redis can't be reached.
    """
    for topic in topics:
        for partition in range(names.partitions):
            key = names.stream(topic, partition)
            try:
                with redis_errors():
                    await redis.xgroup_create(key, GROUPS[topic], id="0", mkstream=True)
            except exceptions.ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise


async def save_users(redis: Redis) -> bool:
    """Save users so that they survive a restart of Redis; of a cluster, on each node.

    Returns False if a server has no file for users and none for its configuration.

    Raises:
        ConfigurationError: our own user may not save them.
        Unavailable: Redis can't be reached.
    """
    with redis_errors():
        nodes = await nodes_of(redis)
    return all([await _save_users(node) for node in nodes])


async def _save_users(node: Redis) -> bool:
    client: Any = node
    for command in ("ACL SAVE", "CONFIG REWRITE"):
        try:
            with redis_errors():
                await client.execute_command(command)
        except exceptions.ResponseError:
            continue
        return True
    return False
