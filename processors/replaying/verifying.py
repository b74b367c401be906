"""Whether a generation is what the log says: every document, chunk, vector and posting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from processors.replaying.findings import Difference
from processors.replaying.folding import Fold, Key, LastChange, Order
from runtime.errors import Poison
from store.database import EVERY_AGENT, Database
from store.digests import DocumentDigest, StoredDigest, index_digest, stored_documents
from store.generations import Generation
from store.keyword.covering import uncovered

__all__ = ["Verified", "compare", "verify"]


@dataclass(frozen=True)
class Verified:
    """What a generation holds, and where it isn't what the log says. Both digests in hex.

    ``expected``: folded from the log, with each document as its writer meant it; ``digest``: of the
    rows as they are.
    """

    documents: int
    chunks: int
    expected: str
    digest: str
    differences: tuple[Difference, ...]

    @property
    def sound(self) -> bool:
        """Whether it may go live."""
        return not self.differences and self.expected == self.digest


async def verify(
    database: Database, generation: Generation, fold: Fold, refused: dict[Order, Poison]
) -> Verified:
    """Read a whole generation and compare it with the fold that it was made from.

    Raises:
        Unavailable: Postgres can't be reached.
    """
    place = generation.project_id, EVERY_AGENT, generation.id
    stored: dict[Key, StoredDigest] = {}
    async with database.scope(*place) as connection:
        async for one in stored_documents(connection, generation.id):
            stored[one.agent, one.uri] = one
        unposted = await uncovered(connection, generation.id)
    differences = [
        *compare(fold, stored, refused),
        *(Difference.of(key, f"{chunks} chunks have no postings") for key, chunks in unposted),
    ]
    living = [one for one in stored.values() if not one.deleted]
    return Verified(
        documents=len(living),
        chunks=sum(one.chunks for one in living),
        expected=index_digest(_expected(fold, stored)).hex(),
        digest=index_digest(stored.values()).hex(),
        differences=tuple(sorted(differences)),
    )


def compare(
    fold: Fold, stored: dict[Key, StoredDigest], refused: dict[Order, Poison]
) -> Iterator[Difference]:
    """What differs between the log's last word and the rows, each document at most once."""
    for last in fold:
        if last.order in refused:
            yield Difference.of(last.key, f"can't be processed: {refused[last.order]}")
            continue
        reason = _reason(last, stored.get(last.key))
        if reason is not None:
            yield Difference.of(last.key, reason)
    for key in stored.keys() - fold.last.keys():
        yield Difference.of(key, "the log has no such document")


def _reason(last: LastChange, row: StoredDigest | None) -> str | None:
    if row is None:
        return "it is missing"
    if (row.position, row.partition) != last.order:
        return f"it is at position {row.position}, and by the log at {last.order[0]}"
    if row.deleted != last.deleted:
        return "it is deleted" if row.deleted else "it should be deleted"
    if row.content_hash != last.content_hash:
        return "it was made from other content"
    if row.recorded != row.digest:
        return "its rows are not what was written"
    if row.vectors + row.unvectored != row.chunks:
        return f"{row.chunks - row.vectors - row.unvectored} of its chunks have no vector"
    return None


def _expected(fold: Fold, stored: dict[Key, StoredDigest]) -> Iterable[DocumentDigest]:
    for last in fold:
        row = stored.get(last.key)
        yield DocumentDigest(
            agent=last.key[0],
            uri=last.uri,
            position=last.order[0],
            partition=last.order[1],
            deleted=last.deleted,
            content_hash=last.content_hash,
            digest=b"" if row is None or row.recorded is None else row.recorded,
        )
