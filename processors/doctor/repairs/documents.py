"""Repair of documents: remove those that the log never had, rebuild the others from the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from events.positions import DocumentKey, LogPosition
from events.streams.changes import LoggedChange
from processors.content import Contents
from processors.doctor.context import Case, texts_in_streams
from processors.doctor.findings import Drift, Subject
from processors.doctor.repairs.index import request_vectors
from processors.embedders.embedder import Urgency
from processors.embedding.live import LiveEmbedding
from processors.embedding.single_flight import SharedEmbedding
from processors.embedding.stage import VectorStage
from processors.indexing.preparation import Cutter, Prepared, Preparer, Resolver
from processors.replay.builder import batches
from processors.replay.fold import LastChange
from runtime.errors import Unavailable, UnsupportedContent
from store.inspection.corrections import forget_vectors, move_document, remove_document
from store.types import DocumentWrite

__all__ = ["DOCUMENT_DRIFTS", "Rebuilding", "repair_documents"]

REBUILT = frozenset(
    {
        "document.missing",
        "document.older",
        "document.newer",
        "document.not_deleted",
        "document.deleted",
        "document.content",
        "document.source",
        "document.rows",
        "vector.missing",
        "vector.foreign",
        "vector.changed",
    }
)
"""Drifts that are repaired by rebuilding the document."""

DOCUMENT_DRIFTS = REBUILT | {"document.unknown"}
"""All drifts that this module repairs."""


async def repair_documents(case: Case, drifts: Sequence[Drift]) -> list[str]:
    """Repair all drifts of each document at once; return why some documents can't be repaired.

    Raises:
        Unavailable: a server is down; what was repaired stays.
    """
    unknown = _seen_at(drifts, "document.unknown")
    for key, seen_at in unknown.items():
        await remove_document(case.desk.tools.database, case.generation, key, seen_at)
    for key, seen_at in _seen_at(drifts, "document.newer").items():
        # move it to its last change: otherwise the fence would refuse the rebuild
        last = case.evidence.fold.last[key]
        origin = last.change.event.data.origin
        database = case.desk.tools.database
        await move_document(database, case.generation, key, seen_at, last.log_position, origin)
    wrong = {
        subject.document
        for name in REBUILT
        for subject in _subjects(drifts, name)
        if subject.document is not None
    }
    return await Rebuilding(case, _doubted(drifts)).run(wrong - unknown.keys())


def _subjects(drifts: Sequence[Drift], name: str) -> Iterator[Subject]:
    return (subject for drift in drifts if drift.name == name for subject in drift.subjects)


def _seen_at(drifts: Sequence[Drift], name: str) -> dict[DocumentKey, LogPosition]:
    """Log positions that documents had at the look."""
    log_positions: dict[DocumentKey, LogPosition] = {}
    for subject in _subjects(drifts, name):
        if subject.document is not None:
            _, log_positions[subject.document] = subject.key
    return log_positions


def _doubted(drifts: Sequence[Drift]) -> Mapping[str, Collection[bytes]]:
    """Hashes of texts, by model, whose vector differs from the cached one.

    It is unknown which of the two is wrong, so both are replaced.
    """
    doubted: defaultdict[str, set[bytes]] = defaultdict(set)
    for subject in _subjects(drifts, "vector.changed"):
        model, content_hash, _ = subject.key
        doubted[model].add(content_hash)
    return doubted


class Rebuilding:
    """Rebuild of documents of a case from the log.

    The fence decides: nothing is written if a worker has applied a newer change since the look.
    ``doubted``: hashes, by model, of texts whose vectors can't be trusted; they are embedded again.
    """

    def __init__(self, case: Case, doubted: Mapping[str, Collection[bytes]]) -> None:
        self._case = case
        self._doubted = doubted
        tools = case.desk.tools
        self._stage = VectorStage(tools.pending, SharedEmbedding(tools.embedders, tools.pending))

    async def run(self, keys: Iterable[DocumentKey]) -> list[str]:
        """Rebuild documents; return why some can't be rebuilt.

        Raises:
            Unavailable: a server is down; what was written stays. If a model is down, the vectors
                are requested from the embedders instead.
            ConfigurationError: a model has no key, for example.
        """
        last = self._case.evidence.fold.last
        wanted = sorted(set(keys))
        failures = [
            f"{self._case.label(key)}: the log lacks it" for key in wanted if key not in last
        ]
        for batch in batches([last[key] for key in wanted if key in last]):
            failures += await self._rebuild(batch)
        return failures

    async def _rebuild(self, batch: Sequence[LastChange]) -> list[str]:
        prepared = await self._prepare([last.alone() for last in batch])
        writes = [document.write for document in prepared.documents]
        await self._forget_doubted(writes)
        tools = self._case.desk.tools
        await tools.store.rebuild(self._case.generation, writes, force=True)
        await self._embed({write.log_position for write in writes})
        return [
            f"{failure.change.event.data.uri}: {failure.error}" for failure in prepared.failures
        ]

    async def _embed(self, log_positions: Collection[LogPosition]) -> None:
        case = self._case
        try:
            await self._stage.run_all(case.project, case.generation.id, log_positions)
        except Unavailable:
            await request_vectors(case, log_positions)

    async def _prepare(self, changes: Sequence[LoggedChange]) -> Prepared:
        tools = self._case.desk.tools
        fetch = _Texts(await self._texts(changes))
        preparer = Preparer(
            Resolver(fetch, tools.settings.max_document_bytes),
            Cutter(tools.pool, tools.embedders),
            LiveEmbedding(tools.store, None),
        )
        return await preparer.prepare(changes, self._case.generation, Urgency.BULK)

    async def _texts(self, changes: Sequence[LoggedChange]) -> Mapping[str, str]:
        """Read contents by hash from the archive and Postgres, or else from the streams."""
        contents = Contents(self._case.project, self._case.desk.tools.archive)
        texts = dict((await contents.of(changes)).by_hash)
        references = (change.event.data.content_ref for change in changes)
        absent = {
            reference.sha256 for reference in references if reference is not None
        } - texts.keys()
        return texts | await texts_in_streams(self._case, absent)

    async def _forget_doubted(self, writes: Iterable[DocumentWrite]) -> None:
        """Remove doubted vectors from the cache before the write takes vectors from it."""
        used = [(chunk.model, chunk.content_hash) for write in writes for chunk in write.chunks]
        for model, hashes in self._doubted.items():
            again = {sha256 for name, sha256 in used if name == model} & set(hashes)
            if again:
                await forget_vectors(
                    self._case.desk.tools.database, self._case.generation, model, again
                )


@dataclass(frozen=True)
class _Texts:
    """Contents by hash in hex."""

    by_hash: Mapping[str, str]

    async def __call__(self, project: str, sha256: str) -> str:
        if sha256 in self.by_hash:
            return self.by_hash[sha256]
        raise UnsupportedContent(
            f"its content {sha256[:12]}… is not stored anywhere: publish it to {project} again"
        )
