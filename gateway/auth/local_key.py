"""API key of the user of ``headrace up``, kept in the home of Headrace, and links that use it."""

from __future__ import annotations

from pathlib import Path

from events.names import Names
from events.server.connection import connect
from gateway.auth.callers import Right
from gateway.auth.keys import Authenticator
from gateway.auth.rates import Rates
from gateway.auth.sessions import Sessions
from runtime.errors import ConfigurationError
from runtime.private import make_private, open_private
from runtime.settings import Settings
from store.generations.catalog import Projects
from store.keys.api_keys import ApiKey, ApiKeyRegister, ApiKeys, NewApiKey
from store.postgres.pool import Database
from store.postgres.roles import OPERATOR

__all__ = ["local_key", "login_link", "stored_key"]

_FILE = "api-key"
_NO_LIMIT = 0
_ALL = frozenset(right.value for right in Right)


async def local_key(settings: Settings) -> str:
    """Return the API key of this user: all rights, all projects, no limits and no expiry.

    It is created once, and kept in HEADRACE_HOME, which only this user may read. Another one is
    created if the database does not accept it, for instance after its loss.

    Raises:
        ConfigurationError: the home can't be written to, or the database does not have the role of
            an operator.
        Unavailable: Postgres can't be reached.
    """
    make_private(settings.home_directory)
    database = await Database.open(settings.database_url, role=OPERATOR, max_size=1)
    try:
        return await _valid_key(database, settings.home_directory)
    finally:
        await database.close()


async def login_link(settings: Settings, address: str) -> str:
    """Return a link to the pages of the gateway at ``address``.

    It opens one session of this user, once, within five minutes; see ``local_key``.

    Raises:
        ConfigurationError, Unavailable: see ``local_key``; also if Redis can't be reached.
    """
    key = await local_key(settings)
    names = Names(settings.stream_prefix, settings.partitions)
    database = await Database.open(settings.database_url, role=OPERATOR, max_size=1)
    redis = connect(settings.redis_url)
    try:
        authenticator = Authenticator(ApiKeys(database), Rates(redis, names))
        ticket = await Sessions(redis, names, authenticator).issue_ticket(key)
    finally:
        await redis.aclose()
        await database.close()
    return f"{address}/login?ticket={ticket}"


def stored_key(settings: Settings) -> str | None:
    """Return the API key that ``local_key`` keeps. Returns None if there is none."""
    try:
        return (settings.home_directory / _FILE).read_text("ascii").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{settings.home_directory / _FILE} can't be read: {error}", "remove it"
        ) from None


async def _valid_key(database: Database, home: Path) -> str:
    file = home / _FILE
    stored = _read(file)
    if stored is not None:
        admitted = await ApiKeys(database).admit(stored.id, stored.digest)
        if admitted is not None and admitted.project is None and admitted.rights >= _ALL:
            return stored.text
    key = ApiKey.new()
    await ApiKeyRegister(database, Projects(database)).add(
        key,
        NewApiKey(None, _ALL, requests_per_minute=_NO_LIMIT, bytes_per_minute=_NO_LIMIT),
    )
    _write(file, key)
    return key.text


def _read(file: Path) -> ApiKey | None:
    try:
        return ApiKey.parse(file.read_text("ascii", "replace").strip())
    except FileNotFoundError:
        return None


def _write(file: Path, key: ApiKey) -> None:
    draft = file.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with open_private(draft, "w") as opened:
        opened.write(f"{key.text}\n")
    draft.replace(file)
