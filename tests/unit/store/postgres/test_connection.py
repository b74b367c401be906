"""Errors of Redis and Postgres, and the program's errors for them."""

from __future__ import annotations

import asyncpg
import pytest
from redis import exceptions
from redis._parsers.base import BaseParser

from events.server.connection import redis_errors
from runtime.errors import HeadraceError, LogFull, Unavailable
from store.postgres.connection import WriteConflict, explained


@pytest.mark.parametrize(
    ("reply", "ours"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", LogFull),
        ("LOADING Redis is loading the dataset in memory", Unavailable),
        ("READONLY You can't write against a read only replica.", Unavailable),
        ("MISCONF Redis is configured to save RDB snapshots, but can't", Unavailable),
        ("NOREPLICAS Not enough good replicas to write.", Unavailable),
        ("BUSY Redis is busy running a script.", Unavailable),
        ("MASTERDOWN Link with MASTER is down", Unavailable),
        ("CLUSTERDOWN The cluster is down", Unavailable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Unavailable),
    ],
)
@pytest.mark.parametrize("in_pipeline", [False, True])
@pytest.mark.parametrize("in_script", [False, True])
def test_replies_of_a_redis_in_trouble(
    reply: str, ours: type[HeadraceError], in_pipeline: bool, in_script: bool
) -> None:
    """Temporary errors of Redis raise retryable errors, also from scripts and pipelines."""
    if in_script:
        reply = (
            f"ERR Error running script (call to f_1a2b): @user_script:9: @user_script: 9: -{reply}"
        )
    error: Exception = BaseParser.parse_error(reply)  # type: ignore[no-untyped-call]  # redis-py
    if in_pipeline:
        error.args = (f"Command # 1 (XADD s * event x) of pipeline caused error: {error}",)
    with pytest.raises(ours), redis_errors():
        raise error


def test_a_command_that_speaks_of_trouble_is_no_trouble() -> None:
    """Text of a publisher in an error message does not decide the error's type."""
    text = "Command # 1 (XADD s * event BUSY OOM) of pipeline caused error: WRONGTYPE no stream"
    with pytest.raises(exceptions.ResponseError, match="WRONGTYPE"), redis_errors():
        raise exceptions.ResponseError(text)


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT"), Unavailable),
        (asyncpg.ConnectionRejectionError("rejected"), Unavailable),
        (asyncpg.PostgresIOError("could not read block"), Unavailable),
        (asyncpg.IdleSessionTimeoutError("terminating"), Unavailable),
        (asyncpg.InsufficientResourcesError("no"), Unavailable),
        (asyncpg.InvalidCachedStatementError("cached plan must not change"), Unavailable),
        (asyncpg.InternalClientError("got result for unknown protocol state 3"), Unavailable),
        (asyncpg.DeadlockDetectedError("deadlock"), WriteConflict),
        (asyncpg.LockNotAvailableError("lock timeout"), WriteConflict),
    ],
)
def test_errors_of_a_postgres_in_trouble(error: Exception, ours: type[HeadraceError]) -> None:
    """Temporary errors of Postgres raise retryable errors."""
    with pytest.raises(ours), explained():
        raise error
