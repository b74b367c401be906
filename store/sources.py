"""Sources of a project's documents, and the leases of the syncs that publish them."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from events.models import Origin
from events.names import LogPosition, overlay_agent
from runtime.errors import NotFound, SourceBusy, SourceLost, UsageError
from store.generations.catalog import Projects
from store.postgres.locks import Lock
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = [
    "Handled",
    "IndexedDocument",
    "LeasedSource",
    "Owners",
    "RegisteredSource",
    "Sources",
    "names_of",
    "scope_in",
    "source_id_of",
]

_QUERIES = named("sources")
_ID_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class RegisteredSource:
    """A source as it was last synced.

    ``id`` is 32 hex characters. ``key`` identifies the source, ``name`` is its name for users,
    ``location`` is where it was last read. ``revision`` is that of the latest sync that began, or
    0. ``documents`` counts its documents that are not deleted, if the caller requested that. Only
    ``agent`` may see the source and its documents; empty: all may. ``base_id`` of an overlay is the
    id of the source whose documents it changes.
    """

    project: str
    id: str
    key: str
    name: str
    kind: str
    location: str
    uri_prefix: str
    revision: int
    commit: str | None
    synced_at: datetime | None
    documents: int = 0
    agent: str = ""
    base_id: str | None = None

    @property
    def owner(self) -> str:
        """Agent of the documents: that of the source or, of an overlay, one of its own."""
        return self.agent if self.base_id is None else overlay_agent(self.agent, self.id)


@dataclass(frozen=True, slots=True)
class LeasedSource:
    """A source whose lease the caller holds. ``state``: saved by the last sync, at first ``{}``."""

    source: RegisteredSource
    revision: int
    commit: str | None
    state: Mapping[str, Any] = field(repr=False)
    token: str = field(repr=False)

    @property
    def origin(self) -> Origin:
        """Origin that every change of this sync carries."""
        return Origin(source=self.source.id, revision=self.revision)


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document in the index. ``content_hash`` is a SHA-256 in hex.

    ``permalink`` is the template that it was published with.
    """

    content_hash: str
    collections: tuple[str, ...]
    commit: str | None
    position: int
    partition: int
    revision: int
    title: str | None
    permalink: str | None


@dataclass(frozen=True, slots=True)
class Owners:
    """Documents, not deleted, of ``others`` (other sources) by uri, and ``without`` a source."""

    others: Mapping[str, RegisteredSource]
    without: frozenset[str]


@dataclass(frozen=True, slots=True)
class Handled:
    """Outcome of a change: ``indexed``, ``superseded`` or ``rejected``, and why it was rejected."""

    outcome: str
    reason: str | None


class Sources:
    """Registers and leases sources, and reads their documents in the index.

    Every method raises ``Unavailable`` if Postgres cannot be reached. A publisher's role may call
    all of them.
    """

    def __init__(self, database: Database, projects: Projects) -> None:
        self._database = database
        self._projects = projects

    async def register(
        self,
        project: str,
        key: str,
        name: str,
        kind: str,
        location: str,
        uri_prefix: str | None = None,
        *,
        agent: str = "",
        former_key: str | None = None,
        base_id: str | None = None,
    ) -> RegisteredSource:
        """The agent's source with this key; creates it, and its project, if it does not exist.

        ``uri_prefix`` None: the prefix chosen before, or no prefix. It can be changed until the
        first sync has published something. ``agent`` empty: the source is shared. ``former_key``:
        if the agent has only a source with that key, and this machine has synced it last, it gets
        the new key, and keeps its id, documents and prefix. ``base_id``: the source is an overlay
        of that one.

        Raises:
            UsageError: the source has another prefix or base, another source has the name, or the
                source was handed over to another key.
        """
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id, agent) as connection:
            await Lock.SOURCES.acquire(connection, project_id)
            if former_key is not None:
                handed = former_key, key, socket.gethostname()
                await connection.execute(_QUERIES["hand_over"], project_id, agent, *handed)
            known_id = await connection.fetchval(_QUERIES["id_of"], project_id, agent, key)
            source_id = known_id or source_id_of(key, agent)
            named_by = project_id, name, source_id, agent
            other = await connection.fetchrow(_QUERIES["conflicting"], *named_by)
            if other is not None:
                raise UsageError(
                    f"another source of {project} is called {name}", "choose a name with --source"
                )
            identity = project_id, source_id, key, name
            values = kind, location, uri_prefix, agent, base_id
            row = await connection.fetchrow(_QUERIES["register"], *identity, *values)
            if row is None:
                raise UsageError(
                    f"the documents of {location} belong to the repository that was there",
                    "delete that source (`headrace source delete`), or sync with --source NAME and "
                    "--prefix NAME/",
                )
            if uri_prefix not in (None, row["uri_prefix"]):
                prefix = row["uri_prefix"]
                state = f"begin with {prefix!r}" if prefix else "have no prefix"
                option = f"with --prefix {prefix!r}" if prefix else "without --prefix"
                raise UsageError(
                    f"the uris of source {name} {state}",
                    f"sync it {option}, or under another name with --source",
                )
            if base_id != row["base_id"]:
                state = "is an overlay" if row["base_id"] else "has no base"
                raise UsageError(
                    f"source {name} {state} since its first sync",
                    "choose another name with --source",
                )
        return _registered(project, row)

    async def list(self, project: str, agent: str = "") -> list[RegisteredSource]:
        """Sources of a project by name, with their documents; empty if it is unknown.

        They are the shared ones and those of the agent.
        """
        project_id = await self._projects.find(project)
        if project_id is None:
            return []
        async with self._database.scope(project_id, agent) as connection:
            rows = await connection.fetch(_QUERIES["list"], project_id)
        return [_registered(project, row) for row in rows]

    async def of_files(
        self, project: str, agent: str = ""
    ) -> Sequence[tuple[RegisteredSource, Mapping[str, Any] | None]]:
        """Repositories and directories that an agent may see, with their options of the last sync.

        They are in order of name. The options are None if no sync has saved any. The result is
        empty if the project is unknown.
        """
        project_id = await self._projects.find(project)
        if project_id is None:
            return []
        async with self._database.scope(project_id, agent) as connection:
            rows = await connection.fetch(_QUERIES["of_files"], project_id)
        sources = []
        for row in rows:
            values = dict(row)
            options = values.pop("options")
            saved = None if options is None else json.loads(options)
            sources.append((_registered(project, values), saved))
        return sources

    async def take(
        self, source: RegisteredSource, lease: timedelta, horizon: int, holder: str | None = None
    ) -> LeasedSource:
        """Take the lease of a source, for one sync, with a revision above every earlier one.

        Args:
            source: the source.
            lease: duration of the lease unless it is renewed.
            horizon: current position of the log (``Client.horizon``). The revision is not below it,
                so that the sync outranks everything that was published before.
            holder: name of the holder for messages to other syncs; None: this host and process.

        Raises:
            SourceBusy: another sync holds the lease.
            UsageError: the source is not registered any more.
        """
        project_id = await self._projects.ensure(source.project)
        token = secrets.token_hex(16)
        holder = holder or f"process {os.getpid()} on {socket.gethostname()}"
        async with self._database.scope(project_id, source.agent) as connection:
            row = await connection.fetchrow(
                _QUERIES["take"], project_id, source.id, horizon, token, holder, lease
            )
            if row is None:
                held = await connection.fetchrow(_QUERIES["holder"], project_id, source.id)
                raise _busy(source, held)
        state = json.loads(row["state"])
        return LeasedSource(source, row["revision"], row["commit"], state, token)

    async def renew(
        self, leased: LeasedSource, lease: timedelta, state: Mapping[str, Any] | None = None
    ) -> None:
        """Extend the lease to ``lease`` from now; ``state`` replaces the saved one.

        Raises:
            SourceLost: another sync has taken the source over.
        """
        kept = None if state is None else json.dumps(dict(state))
        await self._update("renew", leased, lease, kept)

    async def finish(
        self, leased: LeasedSource, state: Mapping[str, Any] | None, commit: str | None
    ) -> None:
        """Save the state of the sync (None: keep the saved one) and release the lease.

        Raises:
            SourceLost: another sync has taken the source over.
        """
        kept = None if state is None else json.dumps(dict(state))
        await self._update("finish", leased, kept, commit)

    async def release(self, leased: LeasedSource) -> None:
        """Release the lease; nothing else changes.

        Raises:
            SourceLost: another sync has taken the source over.
        """
        await self._update("release", leased)

    async def forget(self, leased: LeasedSource) -> None:
        """Remove a source; its documents stay, as documents without a source. For operators.

        Raises:
            SourceLost: another sync has taken the source over.
        """
        await self._update("forget", leased)

    async def state(self, source: RegisteredSource) -> Mapping[str, Any]:
        """State that the last sync has saved; ``{}`` without one."""
        project_id = await self._projects.ensure(source.project)
        async with self._database.scope(project_id, source.agent) as connection:
            state = await connection.fetchval(_QUERIES["state"], project_id, source.id)
        saved: Mapping[str, Any] = json.loads(state or "{}")
        return saved

    async def contents(self, source: RegisteredSource) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Like ``documents``, but returns only the hash of each text and its collections."""
        project_id = await self._projects.find(source.project)
        if project_id is None:
            return {}
        async with self._database.scope(project_id, source.owner) as connection:
            rows = await connection.fetch(_QUERIES["contents"], source.id)
        return {uri: (content_hash, tuple(names)) for uri, content_hash, names in rows}

    async def documents(self, source: RegisteredSource) -> dict[str, IndexedDocument]:
        """Documents of a source in the live generation that are not deleted, by uri."""
        project_id = await self._projects.find(source.project)
        if project_id is None:
            return {}
        async with self._database.scope(project_id, source.owner) as connection:
            rows = await connection.fetch(_QUERIES["documents"], source.id)
        return {row["uri"]: _indexed(row) for row in rows}

    async def owners(self, source: RegisteredSource, uris: Iterable[str]) -> Owners:
        """Owners of the existing documents among ``uris`` that do not belong to ``source``.

        They are documents of the source's agent, or shared ones. A document counts as one without
        a source if its source is not registered any more.
        """
        project_id = await self._projects.find(source.project)
        if project_id is None:
            return Owners({}, frozenset())
        async with self._database.scope(project_id, source.agent) as connection:
            rows = await connection.fetch(_QUERIES["document_sources"], list(uris))
            ids = {row["uri"]: row["source_id"] for row in rows if row["source_id"] != source.id}
            wanted = sorted({source_id for source_id in ids.values() if source_id})
            registered = await connection.fetch(_QUERIES["named"], project_id, wanted)
        by_id = {row["id"]: _registered(source.project, row) for row in registered}
        others = {uri: by_id[source_id] for uri, source_id in ids.items() if source_id in by_id}
        return Owners(others, frozenset(ids.keys() - others.keys()))

    async def states_of_others(
        self, source: RegisteredSource
    ) -> Sequence[tuple[RegisteredSource, Mapping[str, Any]]]:
        """Other sources of the agent with changes in flight, or other shared ones.

        They are no overlays. Of their states, only `version` and `pending` are read.
        """
        project_id = await self._projects.find(source.project)
        if project_id is None:
            return []
        query = _QUERIES["states_of_others"]
        async with self._database.scope(project_id, source.agent) as connection:
            rows = await connection.fetch(query, project_id, source.id, source.agent)
        states = []
        for row in rows:
            values = dict(row)
            state = json.loads(values.pop("state"))
            states.append((_registered(source.project, values), state))
        return states

    async def handled(self, project: str, tokens: Iterable[str]) -> dict[str, Handled]:
        """Outcomes of changes by token, rejected ones too; changes not in the ledger are absent."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return {}
        tokens_at = {LogPosition.from_token(token): token for token in tokens}
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(
                _QUERIES["handled"],
                [log_position.partition for log_position in tokens_at],
                [log_position.position for log_position in tokens_at],
            )
        return {
            tokens_at[LogPosition(row["position"], row["partition"])]: Handled(
                row["outcome"], row["reason"]
            )
            for row in rows
        }

    async def _update(self, query: str, leased: LeasedSource, *values: object) -> None:
        source = leased.source
        project_id = await self._projects.ensure(source.project)
        async with self._database.scope(project_id, source.agent) as connection:
            updated = await connection.fetchval(
                _QUERIES[query], project_id, source.id, leased.token, *values
            )
        if updated is None:
            raise SourceLost(
                f"another sync has taken over source {source.name} because this one did not renew "
                "its lease in time",
                "run it again",
            )


async def scope_in(
    connection: asyncpg.Connection, project_id: int, agent: str | None, overlay: str
) -> str:
    """Agent by which ``agent`` sees an overlay, see ``overlay_agent``; its own overlay comes first.

    Raises:
        NotFound: the agent sees no overlay of this name.
    """
    overlay_id = await connection.fetchval(_QUERIES["overlay"], project_id, overlay)
    if overlay_id is None:
        raise NotFound(
            f"the project has no overlay {overlay[:80]!r}", "`headrace source list` names them"
        )
    return overlay_agent(agent, overlay_id)


async def names_of(connection: asyncpg.Connection, project_id: int) -> dict[str, str]:
    """Names of all registered sources of a project by id."""
    rows = await connection.fetch(_QUERIES["names"], project_id)
    return {row["id"]: row["name"] for row in rows}


def source_id_of(key: str, agent: str = "") -> str:
    """Id of an agent's source with a key: 32 hex characters, the same in every database."""
    identity = f"{agent}\0{key}" if agent else key
    return hashlib.sha256(identity.encode()).hexdigest()[:_ID_CHARACTERS]


def _busy(source: RegisteredSource, held: Mapping[str, Any] | None) -> SourceBusy | UsageError:
    if held is None:
        return UsageError(f"source {source.name} is not registered any more", "sync it again")
    holder, until = held["lease_holder"], held["lease_until"]
    end = "" if until is None else f" until at least {until:%H:%M:%S} UTC"
    return SourceBusy(
        f"{holder} is syncing source {source.name}{end}",
        "try again when it is done",
        holder=holder,
        until=until,
    )


def _registered(project: str, row: Mapping[str, Any]) -> RegisteredSource:
    return RegisteredSource(project=project, **row)


def _indexed(row: Mapping[str, Any]) -> IndexedDocument:
    return IndexedDocument(
        content_hash=row["content_hash"],
        collections=tuple(row["collections"]),
        commit=row["commit"],
        position=row["position"],
        partition=row["partition"],
        revision=row["revision"],
        title=row["title"],
        permalink=row["permalink_template"],
    )
