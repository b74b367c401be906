"""Opens connections, and turns what Postgres says into errors that name the cure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import numpy as np

from runtime.errors import ConfigurationError, Unavailable
from store.types import Vector

__all__ = [
    "BoundedConnection",
    "WriteConflict",
    "connect",
    "encode_vector",
    "explained",
    "no_postgres_url",
    "prepare",
]

_CONNECT_TIMEOUT_S = 10.0
_GRACE_S = 1.0
"""The driver notices most timeouts itself, and cancels the statement at the server then."""
_HEADER_BYTES = 4

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
    """Other writers were in the way; the same transaction may succeed at once."""


class BoundedConnection(asyncpg.Connection):  # type: ignore[misc]  # untyped
    """A connection on which no call outlasts the timeout of its statement by more than a second.

    The driver alone has steps without a limit: it waits for the answer to the closing of a cached
    statement for ever, and so does a worker then, where a firewall has forgotten the connection.

    Each method raises ``TimeoutError`` in such a case; the connection must be terminated then.
    """

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """As the driver's."""
        async with self._limit(timeout):
            status: str = await super().execute(query, *args, timeout=timeout)
            return status

    async def executemany(self, command: str, args: Any, *, timeout: float | None = None) -> None:
        """As the driver's."""
        async with self._limit(timeout):
            await super().executemany(command, args, timeout=timeout)

    async def fetch(
        self, query: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> Any:
        """As the driver's."""
        async with self._limit(timeout):
            return await super().fetch(query, *args, timeout=timeout, **kwargs)

    async def fetchrow(
        self, query: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> Any:
        """As the driver's."""
        async with self._limit(timeout):
            return await super().fetchrow(query, *args, timeout=timeout, **kwargs)

    async def fetchval(
        self, query: str, *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> Any:
        """As the driver's."""
        async with self._limit(timeout):
            return await super().fetchval(query, *args, timeout=timeout, **kwargs)

    def _limit(self, timeout: float | None) -> asyncio.Timeout:
        seconds = self._config.command_timeout if timeout is None else timeout
        return asyncio.timeout(None if seconds is None else seconds + _GRACE_S)


@contextmanager
def explained() -> Iterator[None]:
    """Raise our errors in place of those of the driver.

    Raises:
        Unavailable: the server can't be reached, stopped, can't write, or has no room.
        WriteConflict: another transaction was in the way.
        ConfigurationError: it refuses us, or the schema isn't the one expected.
    """
    try:
        yield
    except _NOT_MIGRATED as error:
        raise ConfigurationError(
            f"the database lacks what this version needs ({error}): run `headrace migrate`"
        ) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise ConfigurationError(
            f"Postgres refuses: {error}: this is for another role, whose user has to be in "
            "HEADRACE_DATABASE_URL (`headrace access` makes one for each role)"
        ) from error
    except _REFUSED as error:
        raise ConfigurationError(
            f"Postgres refuses: {error}; check HEADRACE_DATABASE_URL and run `headrace migrate`"
        ) from error
    except _CONFLICTS as error:
        raise WriteConflict(f"Postgres gave way to another writer: {error}") from error
    except _GONE as error:
        raise _unavailable(error) from error
    except asyncpg.InterfaceError as error:
        if not any(words in str(error) for words in _LOST_BETWEEN_STATEMENTS):
            raise
        raise _unavailable(error) from error


async def connect(url: str, **options: Any) -> asyncpg.Connection:
    """One connection of our own.

    Raises:
        Unavailable: the server can't be reached.
        ConfigurationError: the URL is wrong, or the server refuses it.
    """
    with explained(), _sound_url():
        return await asyncpg.connect(url, timeout=_CONNECT_TIMEOUT_S, **options)


async def prepare(connection: asyncpg.Connection) -> None:
    """Let a connection carry vectors as float16 arrays, in the binary form of pgvector."""
    await connection.set_type_codec(
        "halfvec", schema="public", encoder=_encode, decoder=_decode, format="binary"
    )


@contextmanager
def _sound_url() -> Iterator[None]:
    try:
        yield
    except ValueError:
        raise no_postgres_url() from None


def no_postgres_url() -> ConfigurationError:
    """The error for a URL that can't be read; it quotes nothing, which may be of a password."""
    return ConfigurationError(
        "HEADRACE_DATABASE_URL is no Postgres URL: write "
        "postgresql://user:password@host:port/name, with %2F for a slash in a password, %23 for a #"
    )


def _unavailable(error: BaseException) -> Unavailable:
    reason = str(error) or type(error).__name__
    if isinstance(error, asyncpg.DiskFullError):
        return Unavailable(f"Postgres has no room left ({reason}): make room on its disk")
    return Unavailable(
        f"Postgres can't be reached ({reason}): is it up, and HEADRACE_DATABASE_URL right?"
    )


def encode_vector(vector: Vector) -> bytes:
    """The binary form; arrays of vectors are sent as lists of it.

    The driver would take a list of arrays for an array of two dimensions.
    """
    return len(vector).to_bytes(2, "big") + b"\0\0" + vector.astype(">f2").tobytes()


def _encode(vector: Vector | bytes) -> bytes:
    return vector if isinstance(vector, bytes) else encode_vector(vector)


def _decode(data: bytes) -> Vector:
    return np.frombuffer(data, ">f2", offset=_HEADER_BYTES).astype(np.float16)
