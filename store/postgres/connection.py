"""Opens connections, and converts Postgres errors into Headrace errors that name the remedy.

``in_thread`` keeps a transaction alive during a long computation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ParamSpec, TypeVar

import asyncpg

from runtime.errors import ConfigurationError, Unavailable

__all__ = [
    "BoundedConnection",
    "WriteConflict",
    "connect",
    "connect_once",
    "explained",
    "in_thread",
    "no_postgres_url",
    "result_of",
]

_CONNECT_TIMEOUT_S = 10.0
_GRACE_S = 1.0
"""The driver detects most timeouts itself and then cancels the statement at the server."""

_GONE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidCachedStatementError,
    asyncpg.InternalClientError,
)
_LOST_BETWEEN_STATEMENTS = ("clos", "released back to the pool")
_CONFLICTS = (asyncpg.TransactionRollbackError, asyncpg.LockNotAvailableError)
_REFUSED = (
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.ClientConfigurationError,
    asyncpg.UndefinedObjectError,
    asyncpg.InvalidParameterValueError,
)
_NOT_MIGRATED = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)


class WriteConflict(Unavailable):
    """A conflict with other writers; the same transaction may succeed if repeated at once.

    On a replica, reads conflict with changes of the primary: it must apply them within a time.
    """


class BoundedConnection(asyncpg.Connection):  # type: ignore[misc]  # untyped
    """A connection on which no call outlasts the timeout of its statement by more than a second.

    The driver alone has steps without a timeout: it waits forever for the reply to the closing of
    a cached statement, and would block a worker if a firewall has dropped the connection.

    Each method raises ``TimeoutError`` in such a case; the connection must then be terminated.
    """

    is_shared = False
    """True if a pooler lends the server's session for a transaction at a time."""

    _first_statement = ""
    _kept: str | None = ""
    """Statements of the settings that the session keeps; None if it is unknown which those are."""

    _kept_names: frozenset[str] = frozenset()
    """Names of all settings that the session may keep."""

    def share_server(self) -> None:
        """Keep nothing at the server between transactions: neither settings nor statements."""
        self.is_shared = True
        self._stmt_cache_enabled = False

    @asynccontextmanager
    async def transaction_with(self, first_statement: str) -> AsyncIterator[None]:
        """Run a transaction that sends its first statement, without arguments, with ``BEGIN``.

        It removes the settings that the session keeps.
        """
        statements = [*self._removal(), first_statement] if self._kept != "" else [first_statement]
        self._kept = self._kept and None  # a rollback brings them back
        self._first_statement = ";".join(statements)
        async with self.transaction():
            yield
        self._kept = ""

    async def keep(self, settings: Mapping[str, str]) -> None:
        """Let the session keep these settings, given as literals, and no others.

        It takes no round trip if it has them already. Settings of transactions take precedence.
        """
        statements = ";".join(f"set {name} to {literal}" for name, literal in settings.items())
        if self._kept == statements:
            return
        removal, self._kept = self._removal(), None  # the statements may be cancelled
        self._kept_names |= settings.keys()
        await self.execute(";".join([*removal, statements]))
        self._kept = statements

    def _removal(self) -> list[str]:
        return [f"reset {name}" for name in sorted(self._kept_names)]

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """Call the driver's ``execute`` within the limit."""
        query, self._first_statement = query + self._first_statement, ""
        async with self._limit(timeout):
            status: str = await super().execute(query, *args, timeout=timeout)
            return status

    async def executemany(self, command: str, args: Any, *, timeout: float | None = None) -> None:
        """Call the driver's ``executemany`` within the limit."""
        async with self._limit(timeout):
            await super().executemany(command, args, timeout=timeout)

    async def fetch(
        self, query: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> Any:
        """Call the driver's ``fetch`` within the limit."""
        async with self._limit(timeout):
            return await super().fetch(query, *args, timeout=timeout, **kwargs)

    async def fetchrow(
        self, query: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> Any:
        """Call the driver's ``fetchrow`` within the limit."""
        async with self._limit(timeout):
            return await super().fetchrow(query, *args, timeout=timeout, **kwargs)

    async def fetchval(
        self, query: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> Any:
        """Call the driver's ``fetchval`` within the limit."""
        async with self._limit(timeout):
            return await super().fetchval(query, *args, timeout=timeout, **kwargs)

    def _limit(self, timeout: float | None) -> asyncio.Timeout:
        seconds = self._config.command_timeout if timeout is None else timeout
        return asyncio.timeout(None if seconds is None else seconds + _GRACE_S)


@contextmanager
def explained() -> Iterator[None]:
    """Replace errors of the driver by Headrace errors.

    Raises:
        Unavailable: the server cannot be reached, stopped, cannot write, or is out of disk space.
        WriteConflict: another transaction conflicted with this one.
        ConfigurationError: the server denied access, or the schema is not the expected one.
    """
    try:
        yield
    except _NOT_MIGRATED as error:
        raise ConfigurationError(
            f"the database lacks what this version needs ({error})", "run `headrace migrate`"
        ) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise ConfigurationError(
            f"Postgres denied permission: {error}",
            "name a user with the required role in HEADRACE_DATABASE_URL (`headrace access` "
            "creates one user per role)",
        ) from error
    except _REFUSED as error:
        raise ConfigurationError(
            f"Postgres rejected the session: {error}",
            "check HEADRACE_DATABASE_URL and run `headrace migrate`",
        ) from error
    except _CONFLICTS as error:
        raise WriteConflict(f"conflict with another writer in Postgres: {error}") from error
    except _GONE as error:
        raise _unavailable(error) from error
    except asyncpg.InterfaceError as error:
        if not any(words in str(error) for words in _LOST_BETWEEN_STATEMENTS):
            raise
        raise _unavailable(error) from error


async def connect(url: str, **options: Any) -> asyncpg.Connection:
    """Open a connection outside of any pool.

    Raises:
        Unavailable: the server cannot be reached.
        ConfigurationError: the URL is invalid, or the server denies access.
    """
    with explained(), _valid_url():
        return await asyncpg.connect(url, timeout=_CONNECT_TIMEOUT_S, **options)


async def connect_once(url: str) -> asyncpg.Connection:
    """Open a connection for a few statements, also through a pooler; raises as ``connect``."""
    return await connect(
        url, statement_cache_size=0, server_settings={"application_name": "headrace"}
    )


@contextmanager
def _valid_url() -> Iterator[None]:
    try:
        yield
    except ValueError:
        raise no_postgres_url() from None


def no_postgres_url() -> ConfigurationError:
    """Error for an invalid URL; it quotes nothing of it, because that may contain a password."""
    return ConfigurationError(
        "HEADRACE_DATABASE_URL is not a Postgres URL",
        "write postgresql://user:password@host:port/name, with %2F for a slash in a password, "
        "%23 for a #",
    )


def _unavailable(error: BaseException) -> Unavailable:
    reason = str(error) or type(error).__name__
    if isinstance(error, asyncpg.DiskFullError):
        return Unavailable(f"Postgres has no room left ({reason})", "free space on its disk")
    return Unavailable(
        f"Postgres can't be reached ({reason})", "check that it runs, and HEADRACE_DATABASE_URL"
    )


P = ParamSpec("P")
T = TypeVar("T")

_SIGN_OF_LIFE_S = 1.0


async def in_thread(
    connection: asyncpg.Connection, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run ``work`` in a thread, and send the server a statement every second until it is done.

    Raises:
        asyncpg.PostgresError: the server failed.
    """
    task = asyncio.create_task(asyncio.to_thread(work, *args, **kwargs))
    return await result_of(connection, task)


async def result_of(connection: asyncpg.Connection, task: asyncio.Task[T]) -> T:
    """Wait for work in a thread, and send the server a statement every second until it is done.

    The server ends transactions that are silent for long (``store.postgres.pool``). The work for a
    large document, which takes longer, would then start again and again.

    Raises:
        asyncpg.PostgresError: the server failed.
    """
    try:
        while not (await asyncio.wait([task], timeout=_SIGN_OF_LIFE_S))[0]:
            await connection.execute("select 1")
        return task.result()
    finally:
        task.cancel()
