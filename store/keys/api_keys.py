"""API keys of the gateway's callers. Postgres keeps the SHA-256 of each secret.

The secret is random and long, so a fast hash is enough; and because only hashes are compared, the
time of a comparison says nothing about the secret.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from runtime.errors import NotFound, UsageError
from store.generations.catalog import Projects
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["AdmittedKey", "ApiKey", "ApiKeyRecord", "ApiKeyRegister", "ApiKeys", "NewApiKey"]

_QUERIES = named("api_keys")
_ID_CHARACTERS = 8
_SECRET_BYTES = 32
_ALPHABET = string.ascii_lowercase + string.digits
_API_KEY = re.compile(r"hr_([a-z0-9]{8})_([A-Za-z0-9_-]{43})")
_OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, as its holder has it; ``repr`` does not show its secret of 256 bits."""

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """Create a random key."""
        key_id = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_CHARACTERS))
        return cls(key_id, secrets.token_urlsafe(_SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse ``hr_<id>_<secret>``. Returns None if the text has another form."""
        match = _API_KEY.fullmatch(text)
        return None if match is None else cls(match[1], match[2])

    @property
    def text(self) -> str:
        """The key as its holder sends it: ``hr_``, 8 characters, ``_``, 43 characters."""
        return f"hr_{self.id}_{self.secret}"

    @property
    def digest(self) -> bytes:
        """SHA-256 of the secret."""
        return hashlib.sha256(self.secret.encode()).digest()


@dataclass(frozen=True, slots=True)
class AdmittedKey:
    """Properties of a valid key. ``project`` is None for the key of an operator.

    Limits are per minute. None means the usual limit, 0 means none.
    """

    project: str | None
    agent: str | None
    rights: frozenset[str]
    requests_per_minute: int | None
    bytes_per_minute: int | None


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """Properties of a key to be added; see ``AdmittedKey``. Without a lifetime it never expires."""

    project: str | None
    rights: frozenset[str]
    agent: str | None = None
    lifetime: timedelta | None = None
    requests_per_minute: int | None = None
    bytes_per_minute: int | None = None


@dataclass(frozen=True, slots=True)
class ApiKeyRecord:
    """A key in the register, without its secret; see ``AdmittedKey``.

    ``retired_at`` is None while the key is active. ``last_used_at`` is exact to the minute.
    """

    key_id: str
    project: str | None
    agent: str | None
    rights: Sequence[str]
    requests_per_minute: int | None
    bytes_per_minute: int | None
    created_at: datetime
    expires_at: datetime | None
    retired_at: datetime | None
    last_used_at: datetime | None


class ApiKeys:
    """Checks API keys, as gateways do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def admit(self, key_id: str, digest: bytes) -> AdmittedKey | None:
        """Return the properties of a key, and note its use. Returns None if it is not valid.

        Raises:
            Unavailable: Postgres can't be reached.
            ConfigurationError: the role is neither that of a gateway nor that of an operator.
        """
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_QUERIES["admit"], key_id, digest)
        if row is None:
            return None
        return AdmittedKey(**{**row, "rights": frozenset(row["rights"])})


class ApiKeyRegister:
    """Adds, lists and retires API keys, as an operator.

    Methods raise Unavailable if Postgres can't be reached, and ConfigurationError if it denies
    permission to the role.
    """

    def __init__(self, database: Database, projects: Projects) -> None:
        self._database = database
        self._projects = projects

    async def add(self, key: ApiKey, properties: NewApiKey) -> datetime | None:
        """Add a key; returns the time at which it expires. Creates its project if it doesn't exist.

        Raises:
            UsageError: the key would have the right to operate, but is of one project. Streams and
                dead letters are common to all projects.
        """
        project = properties.project
        if project is not None and _OPERATE in properties.rights:
            raise UsageError(
                f"a key of the project {project} can't have the right to operate, which extends to "
                "all projects",
                "leave the right out, or add a key of an operator",
            )
        project_id = None if project is None else await self._projects.ensure(project)
        async with self._database.connection() as connection:
            expires_at: datetime | None = await connection.fetchval(
                _QUERIES["add"],
                key.id,
                key.digest,
                project_id,
                sorted(properties.rights),
                properties.agent,
                properties.requests_per_minute,
                properties.bytes_per_minute,
                properties.lifetime,
            )
        return expires_at

    async def list(self, project: str | None = None) -> list[ApiKeyRecord]:
        """All keys, or those of a project, oldest first.

        Raises:
            UsageError: the project does not exist.
        """
        project_id = None if project is None else await self._projects.require(project)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_QUERIES["list"], project_id)
        return [ApiKeyRecord(**row) for row in rows]

    async def retire(self, key_id: str) -> None:
        """Retire a key: within seconds, every gateway refuses it.

        Raises:
            NotFound: no active key has this id.
        """
        async with self._database.connection() as connection:
            retired = await connection.fetchval(_QUERIES["retire"], key_id)
        if not retired:
            raise NotFound(
                f"there is no active API key {key_id[:80]!r}",
                "`headrace api-keys list` prints the keys",
            )
