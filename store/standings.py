"""Where documents stand: which change of the log each of them is as it is by."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from events.models import Origin
from events.ranking import Rank, rank_of
from store.database import EVERY_AGENT, Database
from store.generations import Generation
from store.named_queries import named
from store.origins import origin_of

__all__ = ["Standing", "Standings", "Verdict"]

_QUERIES = named("standings")

Key = tuple[str, str]
Order = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Standing:
    """A stored document without its content: the change that made it so, and what it is."""

    agent: str
    uri: str
    position: int
    partition: int
    deleted: bool
    kind: str
    published_at: datetime
    origin: Origin | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Of a row of documents."""
        values = {name: value for name, value in row.items() if not name.startswith("source_")}
        return cls(**values, origin=origin_of(row))

    @property
    def key(self) -> Key:
        """Agent ('' for what is shared) and uri."""
        return self.agent, self.uri

    @property
    def order(self) -> Order:
        """Place in the log."""
        return self.position, self.partition

    @property
    def rank(self) -> Rank:
        """Of the change that it is as it is by."""
        return rank_of(self.position, self.partition, self.origin)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the change at a place of the log.

    ``claimant``: SHA-256 (hex) of the event, where it was applied from another place, as a redrive
    does it; None: it was that of the place itself.
    """

    outcome: str
    claimant: str | None

    def takes(self, event: bytes) -> bool:
        """Whether an event that lies at the place is the one that was taken."""
        if self.outcome == "rejected":
            return False
        return self.claimant in (None, hashlib.sha256(event).hexdigest())


class Standings:
    """Reads where the documents of generations stand, private ones included.

    Every method raises ``Unavailable`` when Postgres can't be reached.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, generation: Generation) -> dict[Key, Standing]:
        """All documents of a generation, tombstones too."""
        place = generation.project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*place) as connection:
            rows = await connection.fetch(_QUERIES["standings"], generation.id)
        found = (Standing.of(row) for row in rows)
        return {one.key: one for one in found}

    async def moment(self, project_id: int) -> int:
        """A transaction id: those before it are done, and seen by whatever is read after this."""
        async with self._database.scope(project_id) as connection:
            return int(await connection.fetchval(_QUERIES["moment"]))

    async def newer(
        self, here: Generation, there: Generation, since: int | None = None
    ) -> list[Standing]:
        """Documents of ``here`` that ``there`` lacks or has older, in the order of the log.

        ``since``: a ``moment``; only those are looked at that were written after it, or by a
        transaction that wasn't done then.
        """
        place = here.project_id, EVERY_AGENT, here.id
        query = _QUERIES["keep_standings" if since is None else "keep_changed_standings"]
        async with self._database.scope(*place) as connection:
            kept = await connection.execute(
                query.format(generation_id=int(here.id), since=int(since or 0))
            )
            if kept == "SELECT 0":
                return []
            await connection.execute(_QUERIES["measure_standings"])
            await connection.execute(_QUERIES["enter_generation"], str(there.id))
            rows = await connection.fetch(_QUERIES["newer_standings"], there.id)
        return [Standing.of(row) for row in rows]

    async def members(self, generation: Generation, collection: str) -> set[Key]:
        """Documents of a collection."""
        place = generation.project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*place) as connection:
            rows = await connection.fetch(_QUERIES["members"], generation.id, collection)
        return {(row["agent"], row["uri"]) for row in rows}

    async def sizes(self, generation: Generation) -> tuple[int, int]:
        """How many living documents and chunks a generation has."""
        place = generation.project_id, EVERY_AGENT, generation.id
        async with self._database.scope(*place) as connection:
            row = await connection.fetchrow(_QUERIES["sizes"], generation.id)
        return row["documents"], row["chunks"]

    async def rejected(self, project_id: int) -> set[Order]:
        """Places of the changes that went to the dead letters."""
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(_QUERIES["rejected"], project_id)
        return {(row["position"], row["partition"]) for row in rows}

    async def outcomes(self, project_id: int, places: Collection[Order]) -> dict[Order, str]:
        """What the ledger says of some changes; those that it doesn't know are absent."""
        positions = [position for position, _ in places]
        partitions = [partition for _, partition in places]
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(
                _QUERIES["outcomes_at"], project_id, positions, partitions
            )
        return {(row["position"], row["partition"]): row["outcome"] for row in rows}

    async def verdicts(self, project_id: int, places: Collection[Order]) -> dict[Order, Verdict]:
        """The same, and of which event it is said."""
        positions = [position for position, _ in places]
        partitions = [partition for _, partition in places]
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(
                _QUERIES["verdicts_at"], project_id, positions, partitions
            )
        return {
            (row["position"], row["partition"]): Verdict(row["outcome"], row["claimant"])
            for row in rows
        }
