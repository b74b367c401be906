"""Connections to Redis: no hidden retries, no lost cancellations, bounded waits, our own errors.

``retrying`` repeats idempotent operations, and ``Headroom`` refuses work near the memory limit.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from events.server.cluster import ClusterClient, primaries_of
from events.server.read_waits import PATIENCE_S, SHARE_OF_TIMEOUT, Endable
from events.server.slots import Address
from runtime.errors import ConfigurationError, LogFull, Unavailable
from runtime.intervals import Backoff
from runtime.secrets import masked

__all__ = [
    "CHANGES_UP_TO",
    "LONGEST_BLOCK",
    "PATIENCE",
    "QUESTIONS_UP_TO",
    "REDIS_SCHEMES",
    "Headroom",
    "MemoryUse",
    "ServerFacts",
    "check_server",
    "connect",
    "read_memory",
    "redis_errors",
    "retrying",
]

REDIS_SCHEMES = frozenset({"redis", "rediss", "unix", "redis+cluster", "rediss+cluster"})
_CLUSTER = "+cluster"
_PORT = 6379

LONGEST_BLOCK = timedelta(seconds=2)
_LONGEST_ENDABLE_BLOCK = timedelta(seconds=14)
_COMMAND_TIMEOUT = timedelta(seconds=5)
_CONNECTIONS = 32
_PASSING = (exceptions.ClusterDownError, exceptions.TryAgainError)
_PASSING_CODES = (
    *("MISCONF", "NOREPLICAS", "BUSY ", "UNKILLABLE"),
    *("LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"),
)
_BEFORE_REPLY = re.compile(r"^.*(?:caused error: |@user_script: \d+: -)", re.DOTALL)
_REFUSED_IN_SCRIPT = "The user executing the script can't"
_BROKEN_IN_UVLOOP = "the handler is closed"
_REMEDY = "check HEADRACE_REDIS_URL and that the server runs"


@dataclass(frozen=True)
class ServerFacts:
    """Properties of a server that must be checked before its streams are trusted."""

    version: tuple[int, ...]
    maxmemory_policy: str
    maxmemory_bytes: int


def connect(redis_url: str, *, blocking: bool = False, endable: bool = False) -> Redis:
    """Create a client that connects on demand; close it with ``aclose()``.

    The client never retries a command: a retried XADD whose reply was lost would add a second
    entry. With ``blocking`` the socket timeout exceeds a read that blocks for ``LONGEST_BLOCK``,
    and every such read has its own connection; without it at most 32 connections are shared. Of a
    cluster, this holds for each node. With ``endable``, ``end_reads`` can end its waiting reads,
    which may be longer.

    Raises:
        ConfigurationError: the URL is not of one of the ``REDIS_SCHEMES``.
    """
    longest_block = _LONGEST_ENDABLE_BLOCK if endable else LONGEST_BLOCK
    timeout = _COMMAND_TIMEOUT + (longest_block if blocking else timedelta())
    options: dict[str, Any] = {
        "socket_timeout": timeout.total_seconds(),
        "socket_connect_timeout": _COMMAND_TIMEOUT.total_seconds(),
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
    }
    try:
        seeds, parsed = _parsed(redis_url)
    except ValueError:
        # the error is not quoted: it takes the rest of a password after a slash for the port
        if redis_url.startswith("kafka://"):
            raise ConfigurationError(
                "HEADRACE_REDIS_URL names a Kafka broker",
                "workers read the log from Redis only; `headrace worker --only bridge` brings "
                "changes from Kafka into it",
            ) from None
        raise ConfigurationError(
            "HEADRACE_REDIS_URL is not a Redis URL",
            "write redis://user:password@host:port/0 (or rediss://, unix://, redis+cluster://), "
            "with %2F for a slash in the password, %23 for a #",
        ) from None
    if endable and "path" not in parsed:
        options |= {"socket_keepalive": True, "socket_keepalive_options": _keepalive()}
    options |= parsed
    kinds = (Endable, _Cancellable) if endable else (_Cancellable,)
    options["connection_class"] = _kind(kinds, options.get("connection_class", Connection))
    if not seeds:
        return Redis.from_pool(_pool(options, blocking=blocking))
    return ClusterClient(
        seeds,
        lambda node: Redis.from_pool(_pool(options | node._asdict(), blocking=blocking)),
    )


def _keepalive() -> dict[int, int]:
    """Options by which the system notices within 7 s that the other side of a wait is gone.

    A command that was sent and not acknowledged is not probed, so it has a limit of its own.
    """
    values = {
        "TCP_KEEPIDLE": 3,
        "TCP_KEEPALIVE": 3,  # its name on macOS
        "TCP_KEEPINTVL": 2,
        "TCP_KEEPCNT": 2,
        "TCP_USER_TIMEOUT": 7_000,
    }
    return {getattr(socket, name): value for name, value in values.items() if hasattr(socket, name)}


def _parsed(redis_url: str) -> tuple[list[Address], dict[str, Any]]:
    """Return the first nodes of a cluster, if the URL names one, and the options of connections.

    Raises:
        ValueError: the URL is not a Redis URL.
        ConfigurationError: the URL of a cluster names another database than 0.
    """
    scheme, _, rest = redis_url.partition("://")
    if not scheme.endswith(_CLUSTER):
        return [], dict(parse_url(redis_url))
    netloc, path, query = urlsplit(f"//{rest}")[1:4]
    user, at, hosts = netloc.rpartition("@")
    options = dict(parse_url(f"{scheme.removesuffix(_CLUSTER)}://{user}{at}_{path}?{query}"))
    if options.pop("db", 0) != 0:
        raise ConfigurationError(
            "HEADRACE_REDIS_URL names a database of a cluster", "a cluster has database 0 only"
        )
    parts = [urlsplit(f"//{host}") for host in hosts.split(",")]
    if not all(part.hostname for part in parts):
        raise ValueError
    return [Address(str(part.hostname), part.port or _PORT) for part in parts], options


def _pool(options: dict[str, Any], *, blocking: bool) -> ConnectionPool:
    if blocking:
        return ConnectionPool(**options)
    bounds = {"max_connections": _CONNECTIONS, "timeout": _COMMAND_TIMEOUT.total_seconds()}
    return _Pool(**bounds | options)


class _Pool(BlockingConnectionPool):
    """Pool that takes its lock only if a command has to wait for a connection.

    That of redis-py takes it for every command, which is a third of the time of a short one.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._waiting = 0

    async def get_connection(self, *args: Any, **keywords: Any) -> AbstractConnection:
        """Lend a connection; raises as the base class does."""
        if self._waiting or not self.can_get_connection():
            self._waiting += 1
            try:
                lent: AbstractConnection = await super().get_connection()  # type: ignore[no-untyped-call]
                return lent
            finally:
                self._waiting -= 1
        connection: AbstractConnection = self.get_available_connection()  # type: ignore[no-untyped-call]
        try:
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: AbstractConnection) -> None:
        """Take a connection back, for the command that waits longest."""
        await ConnectionPool.release(self, connection)
        if self._waiting:
            async with self._condition:
                self._condition.notify()


class _Cancellable(AbstractConnection):
    """Connection that does not lose a cancellation, and reports its own loss as such.

    redis-py bounds each write by ``asyncio.wait_for``, which makes a task of it. Before Python 3.12
    that function swallows a cancellation that arrives at the moment when the write ends: the caller
    continues as if it had not been cancelled, and an ``asyncio.timeout`` around it never ends
    (https://github.com/python/cpython/issues/86296). uvloop raises RuntimeError on a write to a
    connection that it has seen break before its reader was notified.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._longest_s = float(options["socket_timeout"])
        self._patience_s = max((1 - SHARE_OF_TIMEOUT) * self._longest_s, PATIENCE_S)

    async def send_command(self, *args: Any, **options: Any) -> None:
        """Send a command; only one that waits for long may take the whole timeout."""
        wait_s = int(args[args.index(b"BLOCK") + 1]) / 1000 if b"BLOCK" in args else 0.0
        self.socket_timeout = min(wait_s + self._patience_s, self._longest_s)
        await super().send_command(*args, **options)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Read a reply. Commands of a pipeline are not sent one by one: they may take it all."""
        try:
            return await super().read_response(*args, **options)
        finally:
            self.socket_timeout = self._longest_s

    async def send_packed_command(
        self, command: bytes | str | Iterable[bytes], check_health: bool = True
    ) -> None:
        """Send as the base class does, with the same errors, but without a task."""
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        if check_health:
            await self.check_health()  # type: ignore[no-untyped-call]
        if isinstance(command, str):
            command = command.encode()
        parts = [command] if isinstance(command, bytes) else command
        try:
            async with asyncio.timeout(self.socket_timeout):
                await self._send_packed_command(parts)
        except BaseException as error:
            await self.disconnect(nowait=True)
            if isinstance(error, TimeoutError):
                raise exceptions.TimeoutError("Timeout writing to socket") from None
            if isinstance(error, OSError) or _BROKEN_IN_UVLOOP in str(error):
                raise exceptions.ConnectionError(f"Writing to socket failed. {error}") from error
            raise


def _kind(
    kinds: tuple[type[AbstractConnection], ...], base: type[AbstractConnection]
) -> type[AbstractConnection]:
    """Class to connect with, by the class that redis-py would use."""
    return type(f"Headrace{base.__name__}", (*kinds, base), {})


@contextmanager
def redis_errors() -> Iterator[None]:
    """Translate the errors of redis-py into those of Headrace.

    Raises:
        Unavailable: no connection, no reply in time, or the server is loading, read-only, busy, or
            lacks the disk or the replicas that it requires for a write.
        LogFull: the server is at its memory limit.
        ConfigurationError: the server refused the credentials, the user lacks a permission, or the
            server is a node of a cluster and the client is not.
    """
    try:
        yield
    except exceptions.NoPermissionError as error:
        raise _refused(error) from error
    except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
        # redis-py wraps the errors of a connection attempt
        if exceptions.AuthenticationError in (type(error), type(error.__cause__)):
            raise ConfigurationError(
                f"Redis refused the credentials of HEADRACE_REDIS_URL: {_line(error)}"
            ) from error
        raise Unavailable(f"Redis can't be reached ({_line(error)})", _REMEDY) from error
    except exceptions.ResponseError as error:
        if isinstance(error, exceptions.ReadOnlyError) or _reply_of(error).startswith("READONLY"):
            raise Unavailable(
                "Redis is a read-only replica", "point HEADRACE_REDIS_URL at the primary"
            ) from error
        if isinstance(error, exceptions.OutOfMemoryError) or "OOM" in _reply_of(error):
            raise LogFull(
                "Redis is at its memory limit", "let the workers catch up, or raise maxmemory"
            ) from error
        if _REFUSED_IN_SCRIPT in str(error):
            raise _refused(error) from error
        if isinstance(error, exceptions.AskError):
            raise ConfigurationError(
                "HEADRACE_REDIS_URL names one node of a cluster",
                "write redis+cluster:// (or rediss+cluster://) for it",
            ) from error
        if isinstance(error, _PASSING) or _reply_of(error).startswith(_PASSING_CODES):
            raise Unavailable(f"Redis can't run commands now ({_line(error)})", _REMEDY) from error
        raise


def _refused(error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"Redis denied permission: {_line(error)}",
        "connect as a user with a wider role (`headrace access` creates one user per role)",
    )


def _reply_of(error: Exception) -> str:
    """Return the server's reply, also for a command in a pipeline or in a script.

    redis-py puts the command of a pipeline before it, and Redis up to version 6 the script.
    """
    return _BEFORE_REPLY.sub("", str(error))


def _line(error: Exception) -> str:
    return masked(" ".join(str(error).split()))[:200] or type(error).__name__


async def check_server(client: Redis) -> ServerFacts:
    """Read the properties of the server and check them; of a cluster, those of each primary.

    Returns those of the oldest version.

    Raises:
        ConfigurationError: a server evicts keys, so whole streams would be lost when it is full.
        Unavailable: a server can't be reached.
    """
    with redis_errors():
        all_facts = [await _facts(server) for server in await primaries_of(client)]
    for facts in all_facts:
        if facts.maxmemory_policy != "noeviction":
            raise ConfigurationError(
                f"Redis has maxmemory-policy {facts.maxmemory_policy}, which loses whole streams",
                "set it to noeviction",
            )
    return min(all_facts, key=lambda facts: facts.version)


async def _facts(server: Redis) -> ServerFacts:
    async with server.pipeline(transaction=False) as pipeline:
        pipeline.info("server")
        pipeline.info("memory")
        info, memory = await pipeline.execute()
    version = tuple(int(part) for part in str(info["redis_version"]).split("."))
    return ServerFacts(version, str(memory["maxmemory_policy"]), int(memory["maxmemory"]))


PATIENCE = timedelta(seconds=10)
_BACKOFF = Backoff(timedelta(milliseconds=50), timedelta(seconds=1))

log = logging.getLogger(__name__)
Result = TypeVar("Result")


async def retrying(
    operation: Callable[[], Awaitable[Result]], patience: timedelta = PATIENCE
) -> Result:
    """Run an idempotent operation until Redis answers, for at most ``patience``.

    The delays double from 50 ms to 1 s, with jitter, so that clients don't reconnect all at once.

    Raises:
        Unavailable: Redis still can't be reached.
        LogFull, ConfigurationError: see ``redis_errors``; these are not retried.
    """
    deadline = asyncio.get_running_loop().time() + patience.total_seconds()
    failures = 0
    while True:
        try:
            with redis_errors():
                return await operation()
        except Unavailable as error:
            delay_seconds = _BACKOFF.delay(failures).total_seconds()
            if asyncio.get_running_loop().time() + delay_seconds > deadline:
                raise
            log.warning("redis.retry: %s", error)
        await asyncio.sleep(delay_seconds)
        failures += 1


CHANGES_UP_TO = 0.9
QUESTIONS_UP_TO = 0.95
"""Shares of Redis' memory limit; above them, outcomes and replies still have room."""

_HEADROOM_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory use of Redis; ``limit_bytes`` is 0 if it has no limit."""

    used_bytes: int
    limit_bytes: int

    @property
    def share(self) -> float:
        """Used share of the limit; 0 without a limit."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0

    @property
    def refuses_changes(self) -> bool:
        """True if publishers get ``LogFull``."""
        return self.share > CHANGES_UP_TO

    @property
    def refuses_questions(self) -> bool:
        """True if queries get ``LogFull`` too."""
        return self.share > QUESTIONS_UP_TO


class Headroom:
    """Refuses new work while Redis still has room for the workers' writes.

    ``up_to`` is the share of the memory limit above which it refuses.
    """

    def __init__(
        self, redis: Redis, patience: timedelta = PATIENCE, up_to: float = CHANGES_UP_TO
    ) -> None:
        self._redis = redis
        self._patience = patience
        self._up_to = up_to
        self._checked_at = -math.inf

    async def check(self) -> None:
        """Check that Redis has room; it is queried at most once a second.

        Raises:
            LogFull: Redis is near its memory limit.
            Unavailable: Redis could not be reached for as long as ``patience``.
        """
        now = asyncio.get_running_loop().time()
        if now < self._checked_at + _HEADROOM_SECONDS:
            return
        use = await retrying(partial(_read, self._redis), self._patience)
        if use.share > self._up_to:
            raise LogFull(
                f"Redis is above {self._up_to:.0%} of its memory limit of {use.limit_bytes:,} "
                "bytes",
                "let the workers catch up, or raise maxmemory",
            )
        self._checked_at = now


async def read_memory(redis: Redis) -> MemoryUse:
    """Read the memory use of Redis; of a cluster, that of the fullest primary.

    Raises:
        Unavailable: Redis can't be reached.
    """
    with redis_errors():
        return await _read(redis)


async def _read(redis: Redis) -> MemoryUse:
    servers = await primaries_of(redis)
    infos = await asyncio.gather(*(server.info("memory") for server in servers))
    uses = [MemoryUse(int(info["used_memory"]), int(info["maxmemory"])) for info in infos]
    return max(uses, key=lambda use: (use.share, use.used_bytes))
