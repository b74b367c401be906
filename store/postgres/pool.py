"""Connection pool whose every use is restricted to a project, a generation and an agent.

``SilenceWatch`` ends sessions of stopped processes that block the transactions of this one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Self

import asyncpg
import structlog
from pgvector.asyncpg import register_vector

from events.names import overlay_suffix, readable_agents
from runtime.errors import ConfigurationError, OperatorError, Unavailable
from store.postgres.connection import BoundedConnection, explained, no_postgres_url
from store.postgres.named_queries import named
from store.postgres.revision import check
from store.postgres.roles import take_role

__all__ = ["EVERY_AGENT", "Database", "SilenceWatch", "entering", "readable_in_scope"]

EVERY_AGENT = "*"
"""For maintenance (counting, merging): gives access to the private rows of all agents. No agent
can have this name."""

_QUERIES = named("pool")
_CONNECT_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 5.0
_IDLE_S = 60.0
_CACHED_STATEMENTS = 256
"""More than the statements of a worker: the driver closes evicted ones with a round trip each."""
_STATEMENT_TIMEOUT = timedelta(seconds=60)
_SILENT_STATEMENTS = 2
_LONGEST_SILENCE = timedelta(seconds=5)
"""A client may be silent inside a transaction for ``_SILENT_STATEMENTS`` times its longest
statement, but for at most 5 s: a stopped process must not hold rows for longer than
``HEADRACE_LEASE`` lets it hold entries. Between two statements the server ends the transaction; in
the middle of a statement the ``SilenceWatch`` of another process does."""


class Database:
    """Postgres behind row-level security, which no connection of the pool can bypass."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        trusted: set[int],
        watch: SilenceWatch,
        shared_settings: Mapping[str, int | str] = {},
    ) -> None:
        self._pool = pool
        self._trusted = trusted
        self._watch = watch
        self._shared_settings = shared_settings

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        role: str | None = None,
        statement_timeout: timedelta | None = None,
        min_size: int = 1,
        max_size: int = 12,
    ) -> Self:
        """Connect, as ``role`` if it is given and allowed; check the role and the schema.

        With ``statement_timeout``, the server also ends a transaction that is idle for twice as
        long, or for 5 s if that is shorter, so that nothing waits long for a process that is
        stopped or cut off. Without it, a statement may take a minute, and the time between two
        statements is not limited. Sessions that are silent in the middle of a statement are ended
        by the processes that wait for them: see ``SilenceWatch``.

        Behind a pooler that lends sessions for a transaction at a time, the role is that of the
        user, settings are made in each transaction, and no statement is prepared.

        Raises:
            Unavailable: the server cannot be reached.
            ConfigurationError: the role could bypass row-level security, or the schema is not the
                one that this code needs.
        """
        with explained():
            trusted: set[int] = set()
            pool = await _pool(url, role, statement_timeout, trusted, min_size, max_size)
            looks = await _pool(url, role, statement_timeout, set(), 0, 1)
            watch = SilenceWatch(looks, _silence(statement_timeout))
            database = cls(pool, trusted, watch, _silence_settings(statement_timeout))
            try:
                async with pool.acquire() as connection:
                    await _check_role(connection)
                    await check(connection)
            except BaseException:
                await database.close()
                raise
        return database

    async def close(self) -> None:
        """Close all connections; those still in use after 5 s are cut off."""
        await self._watch.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """Acquire a connection without a project: the tables of tenants appear empty.

        After a timeout it is terminated, and so are all others when they are next acquired: the
        network may have dropped each of them.

        Raises:
            Unavailable: the server cannot be reached, or the connection is lost.
            ConfigurationError: the schema is not the expected one.
        """
        async with self._acquired() as connection:
            await connection.keep({})
            yield connection

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[asyncpg.Connection]:
        """Acquire a connection, which may be in the scope of its last ``reading``."""
        with explained():
            connection = await self._trusted_connection()
            try:
                yield connection
            except TimeoutError:
                self._give_up(connection)
                raise
            finally:
                await self._pool.release(connection)

    @asynccontextmanager
    async def scope(
        self,
        project_id: int,
        agent: str | None = None,
        generation_id: int | None = None,
        settings: Mapping[str, int | str] = {},
    ) -> AsyncIterator[asyncpg.Connection]:
        """Begin a transaction that sees one project and, of its indexes, one generation.

        It sees the shared rows of the generation and the private rows of the agent; in an overlay
        (``overlay_agent``), also those of the overlay. It sees no rows of an index if no generation
        is given, or one of another project. ``settings`` of Postgres hold until it ends.

        Raises:
            Unavailable: the server cannot be reached, or the connection is lost; nothing is
                written.
            ConfigurationError: the schema is not the expected one.
        """
        entry = _literals(project_id, agent, generation_id, settings)
        async with self._transaction(entry) as connection:
            yield connection

    @asynccontextmanager
    async def transaction(
        self, lock_timeout: str | None = None
    ) -> AsyncIterator[asyncpg.Connection]:
        """Begin a transaction without a project, which enters scopes by ``enter_to_write``.

        ``lock_timeout``: longest wait for a lock (such as ``500ms``); None: that for a statement.

        Raises:
            WriteConflict: a lock was not released in that time.
            Unavailable, ConfigurationError: as ``scope``.
        """
        settings = {} if lock_timeout is None else {"lock_timeout": lock_timeout}
        async with self._transaction(_as_literals(settings)) as connection:
            yield connection

    @asynccontextmanager
    async def _transaction(self, entry: Mapping[str, str]) -> AsyncIterator[asyncpg.Connection]:
        """Begin a transaction with settings, given as literals, that hold until it ends."""
        async with self._acquired() as connection, self._watch.watching():
            if connection.is_shared:
                entry = {**_as_literals(self._shared_settings), **entry}
            async with connection.transaction_with(_set_local(entry)):
                try:
                    yield connection
                except TimeoutError:
                    self._give_up(connection)  # it cannot be rolled back over this connection
                    raise

    @asynccontextmanager
    async def reading(
        self,
        project_id: int,
        agent: str | None = None,
        generation_id: int | None = None,
        settings: Mapping[str, int | str] = {},
    ) -> AsyncIterator[asyncpg.Connection]:
        """Enter a scope as ``scope`` does, for statements that read, each a transaction.

        The session keeps the scope. So the next reading in the same one begins and ends without a
        round trip, and any other use of the connection leaves the scope first. Behind a pooler,
        which lends sessions to others, it is one transaction.

        Raises:
            Unavailable, ConfigurationError: as ``scope``.
        """
        async with self._acquired() as connection:
            is_shared = connection.is_shared
            if not is_shared:
                async with self._watch.watching():
                    await connection.keep(_literals(project_id, agent, generation_id, settings))
                    yield connection
        if is_shared:
            async with self.scope(project_id, agent, generation_id, settings) as connection:
                yield connection

    def _give_up(self, connection: asyncpg.Connection) -> None:
        self._trusted.clear()
        with contextlib.suppress(asyncpg.InterfaceError):  # it was terminated already
            connection.terminate()

    async def _trusted_connection(self) -> asyncpg.Connection:
        """Acquire a connection that was opened since the last timeout."""
        while True:
            connection = await self._pool.acquire()
            if connection.get_server_pid() in self._trusted:
                return connection
            connection.terminate()
            await self._pool.release(connection)


def entering(
    project_id: int,
    agent: str | None,
    generation_id: int | None,
    settings: Mapping[str, int | str] = {},
) -> str:
    """Statements that enter a scope. They have no parameters, so that ``BEGIN`` is sent with them.

    Every byte of a value is escaped, so that none can end the literal.
    """
    return _set_local(_literals(project_id, agent, generation_id, settings))


def readable_in_scope(agent: str | None) -> str:
    """Agents whose rows a scope sees beside the shared ones and those of its own agent."""
    return " ".join(readable_agents(agent)) if overlay_suffix(agent) else ""


def _set_local(literals: Mapping[str, str]) -> str:
    return ";".join(f"set local {name} to {literal}" for name, literal in literals.items())


def _literals(
    project_id: int,
    agent: str | None,
    generation_id: int | None,
    settings: Mapping[str, int | str],
) -> dict[str, str]:
    """Settings of a scope, as literals."""
    values = {
        "app.project_id": project_id,
        "app.agent": agent or "",
        "app.generation_id": generation_id or "",
        **({"app.readable": readable} if (readable := readable_in_scope(agent)) else {}),
        **settings,
    }
    return _as_literals(values)


def _as_literals(values: Mapping[str, int | str]) -> dict[str, str]:
    return {name: f"E'{_escaped(str(value))}'" for name, value in values.items()}


@lru_cache(1024)
def _escaped(value: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in value.encode())


async def _pool(
    url: str,
    role: str | None,
    statement_timeout: timedelta | None,
    trusted: set[int],
    min_size: int,
    max_size: int,
) -> asyncpg.Pool:
    """Create a pool that keeps the server process ids of its open connections in ``trusted``."""

    async def made(connection: asyncpg.Connection) -> None:
        pid = connection.get_server_pid()
        connection.add_termination_listener(lambda _: trusted.discard(pid))
        await prepare_as_role(connection)
        trusted.add(pid)

    async def prepare_as_role(connection: asyncpg.Connection) -> None:
        own = _QUERIES["has_own_session"].format(pid=connection.get_server_pid())
        if await connection.execute(own) != "SELECT 1":
            connection.share_server()
        else:
            for milliseconds in _silence_settings(statement_timeout).values():
                await connection.execute(_QUERIES["bound_silence"], str(milliseconds))
            if role:
                await take_role(connection, role)
        await register_vector(connection)

    try:
        return await asyncpg.create_pool(
            url,
            min_size=min_size,
            max_size=max_size,
            init=made,
            reset=_nothing_to_reset,
            connection_class=BoundedConnection,
            statement_cache_size=_CACHED_STATEMENTS,
            server_settings={"application_name": "headrace"},
            timeout=_CONNECT_TIMEOUT_S,
            command_timeout=(statement_timeout or _STATEMENT_TIMEOUT).total_seconds(),
            max_inactive_connection_lifetime=_IDLE_S,
        )
    except ValueError as error:
        if "unknown type" in str(error):
            raise ConfigurationError("Postgres lacks pgvector", "run `headrace migrate`") from error
        raise no_postgres_url() from None


def _silence_settings(statement_timeout: timedelta | None) -> dict[str, int | str]:
    """Settings by which the server ends silent transactions; empty without a statement timeout."""
    if statement_timeout is None:
        return {}
    milliseconds = int(_silence(statement_timeout).total_seconds() * 1000)
    return {"idle_in_transaction_session_timeout": milliseconds}


def _silence(statement_timeout: timedelta | None) -> timedelta:
    """Longest time that a client may be silent inside a transaction."""
    return min((statement_timeout or _STATEMENT_TIMEOUT) * _SILENT_STATEMENTS, _LONGEST_SILENCE)


async def _nothing_to_reset(_: asyncpg.Connection) -> None:
    """Save the round trip of a reset: settings end with the transaction that made them."""


async def _check_role(connection: asyncpg.Connection) -> None:
    row = await connection.fetchrow(_QUERIES["describe_role"])
    reason = next((str(key) for key, holds in row.items() if key != "name" and holds), None)
    if reason is not None:
        raise ConfigurationError(
            f"the Postgres role {row['name']} {reason.replace('_', ' ')}, so it is not bound by "
            "row-level security",
            "set HEADRACE_WORKER_ROLE=headrace_worker",
        )


log = structlog.get_logger(__name__)


_PATIENCE_S = 0.3
"""Below ``store.generations.switch.LOCK_WAIT_MS``, so that a switch checks while it waits."""
_INTERVAL_S = 0.5
_WATCH_CLOSE_TIMEOUT_S = 1.0


class SilenceWatch:
    """Checks for silent sessions while a transaction takes longer than usual.

    The waiting side must check: the server itself never ends a session whose client is silent in
    the middle of a statement. While a transaction takes long for another reason, this costs one or
    two SQL queries per second.

    Args:
        pool: a connection for the checks; those of the transactions may all be waiting.
        silence: longest time that a client may be silent in the middle of a statement.
    """

    def __init__(self, pool: asyncpg.Pool, silence: timedelta) -> None:
        self._pool = pool
        self._silence = silence
        self._late: set[object] = set()
        self._watching: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Check repeatedly, from 0.3 s after the beginning of the block until its end.

        A check that has begun is completed even then, because a transaction that gave up waiting is
        usually tried again.
        """
        block = object()
        timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._begin, block)
        try:
            yield
        finally:
            timer.cancel()
            self._late.discard(block)

    async def close(self) -> None:
        """Stop checking."""
        self._pool.terminate()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching], timeout=_WATCH_CLOSE_TIMEOUT_S)

    def _begin(self, block: object) -> None:
        self._late.add(block)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            try:
                with explained():
                    await self._end_silent_sessions()
            except (Unavailable, OperatorError) as error:
                log.warning("silence_watch.failed", error=str(error))
            if not self._late:
                return
            await asyncio.sleep(_INTERVAL_S)

    async def _end_silent_sessions(self) -> None:
        async with self._pool.acquire() as connection:
            try:
                async with asyncio.timeout(self._silence.total_seconds()):
                    ended = await self._ended(connection)
            except BaseException:
                connection.terminate()  # the network may have dropped it
                raise
        if ended:
            log.warning("silent_sessions.ended", sessions=ended)

    async def _ended(self, connection: asyncpg.Connection) -> int:
        """Number of sessions that were ended; takes a fifth of ``silence`` if one is suspect."""
        if not await connection.fetchval(_QUERIES["may_end_silent_sessions"]):
            return 0
        return int(await connection.fetchval(_QUERIES["end_silent_sessions"], self._silence))
