"""Comparison of a generation with the log, and the error that lists the differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import asyncpg
import numpy as np

from events.names import DocumentKey, LogPosition
from processors.replay.fold import Fold
from runtime.errors import OperatorError, Poison
from store.documents.digests import DocumentDigest, IndexDigest, StoredDigest, stored_documents
from store.generations.catalog import Generation
from store.inspection.postings import chunk_owners, survey_postings
from store.inspection.vectors import VectorFinding, vector_findings
from store.postgres.pool import EVERY_AGENT, Database

__all__ = ["Comparison", "Difference", "NotSwitched", "Verification", "verify"]

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
    ``digest`` from the current rows. Documents that only one of them has are differences.
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
    comparison = Comparison(fold, refused)
    async with database.scope(*scope) as connection:
        async for row in stored_documents(connection, generation.id):
            comparison.add(row)
        postings = [difference async for difference in _posting_differences(connection, generation)]
        vectors = await vector_findings(connection, generation)
    differences = comparison.finish()
    listed = {(difference.agent, difference.uri) for difference in differences}
    differences += [
        *postings,
        *(difference for key, difference in _wrong_vectors(vectors) if key not in listed),
    ]
    return Verification(
        documents=comparison.documents,
        chunks=comparison.chunks,
        expected=comparison.expected.digest().hex(),
        digest=comparison.digest.digest().hex(),
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


class Comparison:
    """Comparison of the rows of a generation with the fold that it was built from.

    Rows are added one by one, in order of agent and uri, and none is kept: only the differences
    are, at most one for each document. ``documents`` and ``chunks`` count what is not deleted;
    ``expected`` and ``digest``: see ``Verification``.
    """

    def __init__(self, fold: Fold, refused: Mapping[LogPosition, Poison]) -> None:
        self._fold = fold
        self._refused = refused
        self._compared = np.zeros(len(fold), np.bool_)
        self._differences: list[Difference] = []
        self.documents = self.chunks = 0
        self.expected = IndexDigest()
        self.digest = IndexDigest()

    def add(self, stored: StoredDigest) -> None:
        """Compare the next row."""
        key = DocumentKey(stored.agent, stored.uri)
        if not stored.deleted:
            self.documents += 1
            self.chunks += stored.chunks
        self.digest.add(stored)
        row = self._fold.row_of(key)
        if row is None:
            self._differences.append(Difference.of(key, "the log has no such document"))
            return
        self._compared[row] = True
        self.expected.add(_expected(self._fold, row, stored))
        reason = self._refusal(row) or _reason(self._fold, row, stored)
        if reason is not None:
            self._differences.append(Difference.of(key, reason))

    def finish(self) -> list[Difference]:
        """All differences, after the last row was added."""
        for row in np.flatnonzero(~self._compared).tolist():
            reason = self._refusal(row) or "it is missing"
            self._differences.append(Difference.of(self._fold.key(row), reason))
        return self._differences

    def _refusal(self, row: int) -> str | None:
        error = self._refused.get(self._fold.log_position(row))
        return None if error is None else f"can't be processed: {error.message}"


def _reason(fold: Fold, row: int, stored: StoredDigest) -> str | None:
    log_position, hashed = fold.log_position(row), fold.content_hash(row)
    if stored.log_position != log_position:
        return f"it is at position {stored.position}, but at {log_position.position} in the log"
    if stored.deleted != (hashed is None):
        return "it is deleted" if stored.deleted else "it should be deleted"
    if stored.content_hash != hashed:
        return "it was made from other content"
    if stored.origin != fold.origin(row):
        return "it is of another source"
    if stored.recorded != stored.digest:
        return "its rows are not what was written"
    without_vector = stored.chunks - stored.vectors - stored.refused
    if without_vector:
        return f"{without_vector} of its chunks have no vector of their model"
    return None


def _expected(fold: Fold, row: int, stored: StoredDigest) -> DocumentDigest:
    log_position, hashed = fold.log_position(row), fold.content_hash(row)
    return DocumentDigest(
        agent=stored.agent,
        uri=stored.uri,
        position=log_position.position,
        partition=log_position.partition,
        deleted=hashed is None,
        content_hash=hashed,
        digest=b"" if stored.recorded is None else stored.recorded,
    )
