"""Second stage of indexing: makes vectors for chunks that are searchable by keyword."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from events.names import LogPosition
from processors.embedders.embedder import Urgency
from processors.embedding.keyword_precedence import Precedence
from processors.embedding.single_flight import Embedded, SharedEmbedding
from runtime import traces
from runtime.errors import HeadraceError, Unavailable
from runtime.failpoints import failpoint
from store.documents.ledger import divide
from store.documents.pending import PendingText, PendingVectors

__all__ = ["EmbeddingCost", "Show", "VectorStage"]

Show = Callable[[int], None]

PAGE_TEXTS = 512
"""Texts that are embedded before their chunks are written; a crash repeats at most these."""


@dataclass
class EmbeddingCost:
    """Cost of the vectors of one change.

    ``texts`` were sent to the model; the other chunks had a cached vector. ``refused`` counts the
    chunks whose text the model refuses.
    """

    chunks: int = 0
    texts: int = 0
    refused: int = 0
    tokens: float = 0.0
    cost_usd: float = 0.0

    def add(self, other: EmbeddingCost) -> None:
        """Add the cost of another change."""
        self.chunks += other.chunks
        self.texts += other.texts
        self.refused += other.refused
        self.tokens += other.tokens
        self.cost_usd += other.cost_usd


class VectorStage:
    """Embeds the pending texts of one generation, and writes their vectors.

    ``precedence`` makes bulk work wait for the indexer of this process.

    A text may be embedded twice if two processes need it at the same time, or if one is killed
    between the model's response and the commit.
    """

    def __init__(
        self,
        pending: PendingVectors,
        shared_embedding: SharedEmbedding,
        precedence: Precedence | None = None,
    ) -> None:
        self._pending = pending
        self._shared_embedding = shared_embedding
        self._precedence = precedence or Precedence()

    async def run(
        self,
        project: str,
        generation_id: int,
        log_positions: Collection[LogPosition] | None,
        urgency: Urgency,
        show: Show = lambda _chunks: None,
    ) -> AsyncIterator[Mapping[LogPosition, EmbeddingCost]]:
        """Embed the pending texts of documents written by ``log_positions``; yield costs.

        Texts are embedded in pages: the vectors of a page are visible before the next one begins.
        The cost of each change is yielded once, when it is complete.

        Args:
            project: the project's name.
            generation_id: one of its generations.
            log_positions: log positions of the changes. None means every change.
            urgency: priority of the work at the model.
            show: called with the number of chunks done so far.

        Raises:
            Unavailable: the model or a server is down; written vectors stay, and the texts of
                other models have theirs.
            ConfigurationError: the model has no key, or sends vectors of another width than before.
        """
        costs: defaultdict[LogPosition, EmbeddingCost] = defaultdict(EmbeddingCost)
        failures: dict[str, HeadraceError] = {}
        previous: Sequence[PendingText] = ()
        done = 0
        while True:
            if urgency is Urgency.BULK:
                await self._precedence.wait()
            texts = await self._pending.texts(
                project, generation_id, log_positions, PAGE_TEXTS, without=failures
            )
            if not failures:
                yield _complete(costs, texts)
            if not texts:
                break
            if texts == previous:
                raise Unavailable(
                    f"generation {generation_id} of {project} did not store the vectors of the "
                    f"last {len(texts)} texts"
                )
            previous = texts
            failed, left = await self._embed(project, generation_id, texts, urgency, costs)
            failures |= failed
            done += len(texts)
            show(done)
            if log_positions is not None and not failures and not left and len(texts) < PAGE_TEXTS:
                yield _complete(costs, ())
                break
        for failure in failures.values():
            raise failure

    async def run_all(
        self,
        project: str,
        generation_id: int,
        log_positions: Collection[LogPosition] | None = None,
        show: Show = lambda _chunks: None,
    ) -> EmbeddingCost:
        """Embed all pending texts as bulk work and return the total cost; raises as ``run``."""
        total = EmbeddingCost()
        async for complete in self.run(project, generation_id, log_positions, Urgency.BULK, show):
            for cost in complete.values():
                total.add(cost)
        return total

    async def _embed(
        self,
        project: str,
        generation_id: int,
        texts: Sequence[PendingText],
        urgency: Urgency,
        costs: defaultdict[LogPosition, EmbeddingCost],
    ) -> tuple[dict[str, HeadraceError], int]:
        """Embed one page and write it.

        Returns the errors of models that failed, by name, and the number of chunks that still wait.
        """
        refused: dict[int, str] = {}
        failures: dict[str, HeadraceError] = {}
        spent: defaultdict[LogPosition, EmbeddingCost] = defaultdict(EmbeddingCost)
        for model, missing in _by_model(texts).items():
            try:
                with traces.child("embed"):
                    embedded = await self._shared_embedding.embed(
                        project,
                        model,
                        missing,
                        urgency,
                        {text.content_hash: text.log_position for text in texts},
                    )
            except HeadraceError as error:
                failures[model] = error
            else:
                refused |= _refused(texts, model, embedded)
                _add_costs(spent, texts, missing, embedded)
        failpoint("embedding.embedded")
        with traces.child("write"):
            left = await self._pending.complete(
                project,
                generation_id,
                texts,
                refused,
                {position: (cost.tokens, cost.cost_usd) for position, cost in spent.items()},
            )
        failpoint("embedding.committed")
        for log_position, cost in spent.items():
            costs[log_position].add(cost)
        for text in texts:
            if text.text is not None and text.model not in failures:
                costs[text.log_position].chunks += text.chunk_id not in refused
                costs[text.log_position].refused += text.chunk_id in refused
        return failures, left


def _complete(
    costs: defaultdict[LogPosition, EmbeddingCost], waiting: Sequence[PendingText]
) -> dict[LogPosition, EmbeddingCost]:
    """Take out the complete changes: texts are in log order, so these precede all waiting ones."""
    first = waiting[0].log_position if waiting else None
    complete = [log_position for log_position in costs if first is None or log_position < first]
    return {log_position: costs.pop(log_position) for log_position in complete}


def _add_costs(
    costs: defaultdict[LogPosition, EmbeddingCost],
    texts: Iterable[PendingText],
    missing: Mapping[bytes, str],
    embedded: Embedded,
) -> None:
    payers = {text.content_hash: text.log_position for text in texts}
    shares = divide(missing, payers, embedded.tokens, embedded.cost_usd)
    for log_position, cost in shares.items():
        costs[log_position].texts += cost.texts
        costs[log_position].tokens += cost.tokens
        costs[log_position].cost_usd += cost.cost_usd


def _by_model(texts: Iterable[PendingText]) -> Mapping[str, dict[bytes, str]]:
    """Group the texts that the cache lacks by model, each text once."""
    missing: defaultdict[str, dict[bytes, str]] = defaultdict(dict)
    for text in texts:
        if text.text is not None and not text.cached:
            missing[text.model][text.content_hash] = text.text
    return missing


def _refused(texts: Iterable[PendingText], model: str, embedded: Embedded) -> dict[int, str]:
    return {
        text.chunk_id: embedded.refused[text.content_hash]
        for text in texts
        if text.model == model and text.content_hash in embedded.refused
    }
