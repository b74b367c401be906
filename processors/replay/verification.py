"""Comparison of a generation with the log, and the error that lists the differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass

import asyncpg

from events.names import DocumentKey, LogPosition
from processors.replay.fold import Fold, LastChange
from runtime.errors import OperatorError, Poison
from store.documents.digests import DocumentDigest, StoredDigest, index_digest, stored_documents
from store.generations.catalog import Generation
from store.inspection.postings import chunk_owners, survey_postings
from store.inspection.vectors import VectorFinding, vector_findings
from store.postgres.pool import EVERY_AGENT, Database

__all__ = ["Difference", "NotSwitched", "Verification", "compare", "verify"]

_VECTOR_FINDINGS = {
    "missing": "no vector of their model",
    "foreign": "a vector of another model than the recipe names",
    "changed": "a vector that does not belong to their text",
}

_LISTED = 3


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """A document or keyword segment that differs from what it should be.

    ``agent``: '' for shared documents.
    """

    agent: str
    uri: str
    reason: str

    @classmethod
    def of(cls, key: DocumentKey, reason: str) -> Difference:
        """Build a difference for the document with this key."""
        return cls(*key, reason)

    def __str__(self) -> str:
        owner = f" (private to {self.agent})" if self.agent else ""
        return f"{self.uri}{owner}: {self.reason}"


class NotSwitched(OperatorError):
    """The new generation was not made live; the live generation is unchanged.

    ``differences`` gives the reasons, document by document. The first ones replace ``{documents}``
    in the message.
    """

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        differences: Sequence[Difference] = (),
        generation: int | None = None,
    ) -> None:
        self.differences = tuple(differences)
        self.generation = generation
        listed = "; ".join(map(str, self.differences[:_LISTED]))
        more = len(self.differences) - _LISTED
        omitted = f"; and {more:,} more" if more > 0 else ""
        super().__init__(message.replace("{documents}", f"{listed}{omitted}"), remedy)


@dataclass(frozen=True)
class Verification:
    """Contents of a generation, and its differences from the log. Both digests are in hex.

    ``expected`` is computed from the log and the digests recorded when documents were written;
    ``digest`` from the current rows.
    """

    documents: int
    chunks: int
    expected: str
    digest: str
    differences: tuple[Difference, ...]

    @property
    def matches_log(self) -> bool:
        """Return whether the generation may go live."""
        return not self.differences and self.expected == self.digest


async def verify(
    database: Database, generation: Generation, fold: Fold, refused: dict[LogPosition, Poison]
) -> Verification:
    """Read a whole generation and compare it with the fold that it was built from.

    Raises:
        Unavailable: Postgres can't be reached.
    """
    scope = generation.project_id, EVERY_AGENT, generation.id
    stored: dict[DocumentKey, StoredDigest] = {}
    async with database.scope(*scope) as connection:
        async for row in stored_documents(connection, generation.id):
            stored[DocumentKey(row.agent, row.uri)] = row
        postings = [difference async for difference in _posting_differences(connection, generation)]
        vectors = await vector_findings(connection, generation)
    differences = list(compare(fold, stored, refused))
    listed = {(difference.agent, difference.uri) for difference in differences}
    differences += [
        *postings,
        *(difference for key, difference in _wrong_vectors(vectors) if key not in listed),
    ]
    existing = [row for row in stored.values() if not row.deleted]
    return Verification(
        documents=len(existing),
        chunks=sum(row.chunks for row in existing),
        expected=index_digest(_expected(fold, stored)).hex(),
        digest=index_digest(stored.values()).hex(),
        differences=tuple(sorted(differences)),
    )


async def _posting_differences(
    connection: asyncpg.Connection, generation: Generation
) -> AsyncIterator[Difference]:
    """Yield chunks without postings, and bad segments.

    The segments are stable: only those of live generations are merged.
    """
    survey = await survey_postings(connection, generation.id)
    owners = await chunk_owners(connection, generation.id, survey.missing)
    for key, chunks in Counter(DocumentKey(owner.agent, owner.uri) for owner in owners).items():
        yield Difference.of(key, f"{chunks} chunks have no postings")
    for segment in survey.to_rewrite:
        reason = survey.broken.get(segment, "other segments contain its chunks, too")
        yield Difference("", f"keyword segment {segment}", reason)


def _wrong_vectors(
    findings: Iterable[VectorFinding],
) -> Iterator[tuple[DocumentKey, Difference]]:
    counts = Counter(
        (DocumentKey(finding.agent, finding.uri), finding.kind) for finding in findings
    )
    for (key, kind), chunks in counts.items():
        yield key, Difference.of(key, f"{chunks} of its chunks have {_VECTOR_FINDINGS[kind]}")


def compare(
    fold: Fold, stored: dict[DocumentKey, StoredDigest], refused: dict[LogPosition, Poison]
) -> Iterator[Difference]:
    """Differences between the fold of the log and the rows, at most one for each document."""
    for last in fold:
        if last.log_position in refused:
            yield Difference.of(
                last.key, f"can't be processed: {refused[last.log_position].message}"
            )
            continue
        reason = _reason(last, stored.get(last.key))
        if reason is not None:
            yield Difference.of(last.key, reason)
    for key in stored.keys() - fold.last.keys():
        yield Difference.of(key, "the log has no such document")


def _reason(last: LastChange, row: StoredDigest | None) -> str | None:
    if row is None:
        return "it is missing"
    if (row.position, row.partition) != last.log_position:
        return f"it is at position {row.position}, but at {last.log_position[0]} in the log"
    if row.deleted != last.deleted:
        return "it is deleted" if row.deleted else "it should be deleted"
    if row.content_hash != last.content_hash:
        return "it was made from other content"
    if row.origin != last.change.event.data.origin:
        return "it is of another source"
    if row.recorded != row.digest:
        return "its rows are not what was written"
    without_vector = row.chunks - row.vectors - row.refused
    if without_vector:
        return f"{without_vector} of its chunks have no vector of their model"
    return None


def _expected(fold: Fold, stored: dict[DocumentKey, StoredDigest]) -> Iterable[DocumentDigest]:
    for last in fold:
        row = stored.get(last.key)
        yield DocumentDigest(
            agent=last.key[0],
            uri=last.uri,
            position=last.log_position[0],
            partition=last.log_position[1],
            deleted=last.deleted,
            content_hash=last.content_hash,
            digest=b"" if row is None or row.recorded is None else row.recorded,
        )
