"""Signing keys of a project's publishers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from events.signatures import Keys, SigningKey
from runtime.errors import UsageError
from store.generations.catalog import Projects
from store.postgres.locks import Lock
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["KeyRecord", "KeyRegister", "PublisherKeys"]

_QUERIES = named("publisher_keys")
"""Space of the advisory locks that serialise changes of a project's keys."""


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key without its secret. ``retired_at`` is None while the key is active."""

    key_id: str
    created_at: datetime
    retired_at: datetime | None


class PublisherKeys:
    """Reads keys, as workers do.

    Methods raise Unavailable if Postgres cannot be reached.
    """

    def __init__(self, database: Database, projects: Projects) -> None:
        self._database = database
        self._projects = projects

    async def read(self, projects: Collection[str]) -> dict[str, Keys]:
        """The keys of each project; an unknown project has none."""
        ids = await self._projects.find_all(projects)
        rows = []
        if ids:
            async with self._database.connection() as connection:
                rows = await connection.fetch(_QUERIES["read"], sorted(ids.values()))
        secrets: defaultdict[int, dict[str, str | None]] = defaultdict(dict)
        for row in rows:
            secrets[row["project_id"]][row["key_id"]] = row["secret"]
        return {name: _keys(secrets[ids[name]] if name in ids else {}) for name in projects}

    async def active_ids(self, project: str) -> frozenset[str]:
        """Ids of the active keys; a publisher may read these, but no secrets."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return frozenset()
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["active_ids"])
        return frozenset(row["key_id"] for row in rows)


def _keys(secrets: Mapping[str, str | None]) -> Keys:
    """Keys by their secrets; a retired key has none."""
    active = {key_id: secret for key_id, secret in secrets.items() if secret is not None}
    return Keys(active, frozenset(secrets.keys() - active.keys()))


class KeyRegister:
    """Changes the keys of projects, as an operator.

    Methods raise Unavailable if Postgres cannot be reached, and ConfigurationError if it denies
    permission to the role.
    """

    def __init__(self, database: Database, projects: Projects) -> None:
        self._database = database
        self._projects = projects

    async def add(self, project: str, key: SigningKey) -> None:
        """Add a key: the project then accepts changes signed with it, and none without a signature.

        Creates the project if it does not exist.

        Raises:
            UsageError: the project has, or had, a key with this id.
        """
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            added = await connection.fetchval(_QUERIES["add"], project_id, key.id, key.secret)
        if added is None:
            raise UsageError(f"{project} has, or had, a key {key.id}", "choose another id")

    async def list(self, project: str) -> list[KeyRecord]:
        """All keys of a project, oldest first.

        Raises:
            UnknownProject: no project has this name.
        """
        async with self._database.scope(await self._projects.require(project)) as connection:
            return await _records(connection)

    async def retire(self, project: str, key_id: str, *, also_last: bool = False) -> None:
        """Retire a key: changes signed with it are refused, and its secret is deleted.

        Raises:
            UsageError: the project or an active key with this id does not exist; or it is the last
                key, without which the project accepts changes of every publisher, and ``also_last``
                is false.
        """
        project_id = await self._projects.require(project)
        async with self._database.scope(project_id) as connection:
            await Lock.PUBLISHER_KEYS.acquire(connection, project_id)
            records = await _records(connection)
            active = {record.key_id for record in records if record.retired_at is None}
            _check_retirement(project, key_id, active, also_last=also_last)
            await connection.execute(_QUERIES["retire"], key_id)


async def _records(connection: asyncpg.Connection) -> list[KeyRecord]:
    return [KeyRecord(**row) for row in await connection.fetch(_QUERIES["list"])]


def _check_retirement(
    project: str, key_id: str, active: Collection[str], *, also_last: bool
) -> None:
    if key_id not in active:
        raise UsageError(
            f"{project} has no active key {key_id[:80]!r}",
            f"`headrace keys list --project {project}` prints its keys",
        )
    if len(active) == 1 and not also_last:
        raise UsageError(
            f"{key_id} is the last key of {project}: without a key, anyone who can reach Redis may "
            "change the project",
            "add another key first, or pass --last",
        )
