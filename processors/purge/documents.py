"""Purge of documents: remove their text from index, log, archive and the servers' files.

It can be interrupted anywhere and run again: each step determines what is left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from events.client.client import Client
from events.client.publisher import Receipt
from events.names import DocumentKey, LogPosition
from events.server.persistence import rewrite_files
from events.streams.purge import PurgeTargets, StreamPurge, referred, require_rights
from processors.purge.deletes import await_archived, await_deletes, publish_deletes
from processors.wiring.servers import Servers
from runtime.errors import Unavailable, UsageError
from store.archive.compaction.redaction import Purged
from store.generations.catalog import Generation
from store.generations.drop import drop_rows, forget
from store.generations.judgements import Judgements
from store.postgres.locks import replay_lock
from store.purge.rewriter import Rewriter
from store.purge.rows import DeletedRows
from store.types import DocumentWrite

__all__ = ["OUT_OF_REACH", "Purge", "PurgeReport", "finish", "purge_documents"]

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Purge:
    """Dependencies of a purge. ``patience``: how long each step waits for other processes."""

    servers: Servers
    rewriter: Rewriter
    patience: timedelta


async def purge_documents(
    purge: Purge, client: Client, project: str, agent: str, uris: Sequence[str]
) -> PurgeReport:
    """Delete documents, and remove all data that any of their versions left behind.

    Raises:
        UsageError: no such project, it is being replayed, or a document was changed during the
            purge.
        ConfigurationError: the Redis user lacks permission.
        Unavailable: a server, the archive or a worker can't be reached or is too slow.
    """
    servers = purge.servers
    project_id = await servers.projects.require(project)
    await require_rights(servers.redis, servers.names)
    async with replay_lock(servers.database, project, project_id):
        receipts = await publish_deletes(client, project, agent, uris)
        chunks, superseded = await await_deletes(client, list(receipts.values()), purge.patience)
        if superseded:
            raise UsageError(
                f"{superseded} documents were changed during the purge", "run it again"
            )
        await await_archived(servers.redis, servers.names, receipts.values(), purge.patience)
        report = PurgeReport(project, len(uris))
        work = _DocumentPurge(purge, project_id, agent, receipts, report)
        await work.run(chunks)
        await finish(purge, report)
    return report


async def finish(purge: Purge, report: PurgeReport) -> None:
    """Rewrite the files of both servers, so that they contain no deleted bytes.

    Raises:
        Unavailable: a server can't be reached or has no disk space.
        ConfigurationError: the Redis user lacks permission.
    """
    remaining = await purge.rewriter.rewrite(purge.patience)
    if remaining:
        report.remains.append(
            f"older transactions still need deleted rows of {', '.join(remaining)}: "
            "run the purge again when they have ended"
        )
    reason = await purge.rewriter.renew_log()
    if reason is not None:
        report.remains.append(reason)
    report.removed["Postgres files"] = "tables, statistics and write-ahead log rewritten"
    files = await rewrite_files(purge.servers.redis, purge.patience)
    report.removed["Redis files"] = f"{' and '.join(files)} rewritten" if files else "none kept"


class _DocumentPurge:
    """The steps of one purge after the documents are deleted from the live generation."""

    def __init__(
        self,
        purge: Purge,
        project_id: int,
        agent: str,
        receipts: Mapping[str, Receipt],
        report: PurgeReport,
    ) -> None:
        self._purge = purge
        self._servers = purge.servers
        self._project_id = project_id
        self._agent = agent
        self._positions = {
            uri: LogPosition.from_token(receipt.token) for uri, receipt in receipts.items()
        }
        self._delete_positions = {
            DocumentKey(agent, uri): position for uri, position in self._positions.items()
        }
        self._targets = PurgeTargets(report.project, self._delete_positions)
        self._deleted_rows = DeletedRows(purge.servers.database, project_id)
        self._streams = StreamPurge(purge.servers.redis, purge.servers.names)
        self._report = report

    async def run(self, chunks: int) -> None:
        """Remove what the documents left behind; the deletes have removed ``chunks`` chunks."""
        archived = await self._servers.archive.survey(self._project_id, self._delete_positions)
        outbox, outbox_hashes = await self._purge_outbox()
        streams = await self._streams.purge(self._targets, self._purge.patience)
        self._report.add_crowded(streams.crowded)
        generations = await self._purge_generations(chunks)
        needed = archived.needed | streams.needed | outbox_hashes
        contents = await self._deleted_rows.drop_contents(archived.hashes - needed)
        vectors, contexts = await self._deleted_rows.purge_caches(generations)
        reasons = await self._deleted_rows.silence_rejections(archived.log_positions)
        judgements = await Judgements(self._servers.database).drop(
            self._project_id, self._positions
        )
        removed = self._report.removed
        removed["vector cache"] = f"{vectors} vectors that no text uses"
        removed["context cache"] = f"{contexts} contexts that no chunk uses"
        removed["contents by reference"] = str(contents)
        removed["ledger"] = f"{reasons} rejection reasons"
        removed["judgements"] = str(judgements)
        removed["outbox"] = f"{outbox} events"
        removed["streams"] = str(streams)
        await self._purge_archive()
        await self._check_removed(generations)

    async def _purge_outbox(self) -> tuple[int, set[str]]:
        """Drop the documents' events from the outbox.

        Returns how many were dropped, and the hashes that the other events refer to.
        """
        events = await self._deleted_rows.outbox()
        purged_events = {
            event_id
            for event_id, raw in events.items()
            if self._targets.change(raw, LogPosition(0, 0))
        }
        needed = {
            sha256
            for event_id, raw in events.items()
            if event_id not in purged_events
            for sha256 in referred(raw)
        }
        return await self._deleted_rows.drop_outbox(purged_events) if purged_events else 0, needed

    async def _purge_generations(self, chunks: int) -> list[Generation]:
        """Delete the documents from every generation, and words that no document contains."""
        segments = words = 0
        generations = []
        for generation in await self._servers.store.generations(self._report.project):
            if generation.state == "dropping":
                async for _ in drop_rows(self._servers.database, generation):
                    pass
                await forget(self._servers.database, generation)
                continue
            if generation.state != "live":
                applied = await self._servers.store.rebuild(generation, self._writes())
                chunks += sum(result.chunks_removed for result in applied)
            purged = await self._deleted_rows.purge_words(generation)
            segments += purged.segments
            words += purged.words
            generations.append(generation)
        self._report.removed["index"] = f"{chunks} chunks in {len(generations)} generations"
        self._report.removed["keyword index"] = f"{words} words, {segments} segments rewritten"
        return generations

    def _writes(self) -> list[DocumentWrite]:
        return [
            DocumentWrite(
                event_id="",
                project=self._report.project,
                agent=self._agent or None,
                uri=uri,
                change="delete",
                position=position.position,
                partition=position.partition,
                published_at=datetime.now(UTC),
            )
            for uri, position in self._positions.items()
        ]

    async def _purge_archive(self) -> None:
        purged = await self._run_archive_purge()
        self._report.removed["archive"] = (
            f"text of {purged.changes} changes, {purged.contents} contents, "
            f"{purged.files} files replaced"
        )
        self._report.remains += [
            f"{error.path} is damaged and may contain purged text: run `headrace doctor --repair`"
            for error in purged.damaged
        ]
        if purged.young:
            self._report.remains.append(
                f"{purged.young} files of the archive are not in its index yet: "
                "run the purge again in an hour"
            )

    async def _run_archive_purge(self) -> Purged:
        deadline = monotonic() + self._purge.patience.total_seconds()
        while True:
            purged = await self._servers.archive.purge(
                self._report.project, self._project_id, self._delete_positions
            )
            if purged is not None:
                return purged
            if monotonic() > deadline:
                raise Unavailable("the archive is being compacted", "run the purge again later")
            await asyncio.sleep(_POLL_SECONDS)

    async def _check_removed(self, generations: Sequence[Generation]) -> None:
        """Check all places again and report what was added during the purge."""
        uris = list(self._positions)
        chunks = 0
        for generation in generations:
            chunks += await self._deleted_rows.count_chunks(generation, self._agent, uris)
        archived = await self._servers.archive.survey(self._project_id, self._delete_positions)
        remaining = {
            "chunks in the index": chunks,
            "entries in the streams": await self._streams.count(self._targets),
            "changes in the archive": archived.changes,
        }
        self._report.remains += [
            f"{count} {place}: the document was published again; run the purge again"
            for place, count in remaining.items()
            if count
        ]


OUT_OF_REACH = (
    "backups, replicas and archived logs of Postgres and Redis; older versions that the archive's "
    "storage keeps; blocks that a file system has freed; texts that were sent to a remote model"
)


@dataclass
class PurgeReport:
    """Report of a purge. ``removed`` describes what was removed, by place, in order of the work.

    ``remains`` gives the reasons why something is left. ``documents`` is their number, or None if
    the whole project was purged.
    """

    project: str
    documents: int | None
    removed: dict[str, str] = field(default_factory=dict)
    remains: list[str] = field(default_factory=list)

    def add_crowded(self, keys: Iterable[str]) -> None:
        """Note streams that still hold deleted entries in memory."""
        self.remains += [
            f"{key} still holds deleted entries in memory, beside entries that a group has not "
            "handled: run the purge again when `headrace status` shows no lag"
            for key in keys
        ]

    @property
    def is_complete(self) -> bool:
        """Return whether everything within reach was removed."""
        return not self.remains

    def as_json(self) -> dict[str, Any]:
        """Plain values, as the command prints them."""
        return {**asdict(self), "complete": self.is_complete, "out_of_reach": OUT_OF_REACH}
