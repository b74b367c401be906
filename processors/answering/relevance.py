"""Reranking of the best candidates by their relevance to the question.

A model reads the question and each chunk together, which is slow and better than any score of
both apart. If it is late or broken, the answer keeps the fused order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import structlog

from events.models import Query
from processors.answering.fusion import Fused
from processors.answering.query_text import searchable
from processors.embedders.remote.circuit_breaker import CircuitStatus
from processors.embedders.reranker import Relevances, Reranker
from runtime import metrics
from runtime.errors import HeadraceError, Unavailable, UsageError
from runtime.traces import staged
from store.documents.costs import RerankCosts, Usage
from store.types import ChunkRow

__all__ = ["Ranked", "RelevanceStep"]

log = structlog.get_logger(__name__)

FetchRows = Callable[[Sequence[int]], Awaitable[Mapping[int, ChunkRow]]]


@dataclass(frozen=True, slots=True)
class Ranked:
    """Chunks in the order of an answer.

    ``is_degraded``: the chunks are in fused order, because the reranker failed. ``is_filtered``:
    chunks were left out because of their relevance.
    """

    chunks: Sequence[Fused]
    is_degraded: bool = False
    is_filtered: bool = False


class RelevanceStep:
    """Reorders the best candidates of a question, if a reranker is configured.

    Args:
        reranker: the model. None means that the fused order is the answer's.
        costs: ledger of the requests. Entries are written after the answer.
        candidates: number of chunks to compare. None means as many as suits the model.
        timeout: time limit of one question's reranking.
    """

    def __init__(
        self,
        reranker: Reranker | None,
        costs: RerankCosts | None = None,
        candidates: int | None = None,
        timeout: timedelta = timedelta(seconds=1),
    ) -> None:
        self._reranker = reranker
        self._costs = costs
        self._candidates = candidates
        self._timeout = timeout
        self._entries: set[asyncio.Task[None]] = set()
        self._is_announced = False

    @property
    def circuits(self) -> list[CircuitStatus]:
        """State of the circuit of a remote reranker."""
        return [] if self._reranker is None else self._reranker.circuits

    async def load(self) -> None:
        """Load the reranker.

        Raises:
            ConfigurationError: its key is not set, or the model does not exist.
        """
        if self._reranker is not None:
            await self._reranker.load()

    def candidates(self, query: Query) -> int:
        """Return the number of chunks to compare with a question; 0 if it is not reranked.

        Raises:
            UsageError: the question demands a least relevance, and there is no reranker.
        """
        if self._reranker is None:
            if query.min_relevance is not None:
                raise UsageError(
                    "min_relevance needs a reranker, and none is configured",
                    "set HEADRACE_RERANK for the workers, or use min_similarity",
                )
            return 0
        if not query.rerank or not searchable(query.text).strip():
            return 0
        return self._candidates or self._reranker.candidates

    @staged("rerank")
    async def order(
        self,
        query: Query,
        project_id: int,
        ranked: Sequence[Fused],
        fetch_rows: FetchRows,
        left: timedelta,
    ) -> Ranked:
        """Order the best candidates by relevance; the others follow in fused order.

        It takes at most half of ``left``. With ``min_relevance``, chunks of a lower or unknown
        relevance are left out, unless the reranker fails.
        """
        count = self.candidates(query)
        if self._reranker is None or not count or not ranked:
            return Ranked(ranked)
        within = min(self._timeout, left / 2)
        try:
            async with asyncio.timeout(within.total_seconds()):
                rows = await fetch_rows([chunk.chunk_id for chunk in ranked[:count]])
                compared = [chunk for chunk in ranked[:count] if chunk.chunk_id in rows]
                texts = [_text(rows[chunk.chunk_id]) for chunk in compared]
                relevances = await self._relevances(self._reranker, query, texts)
        except TimeoutError:
            error: HeadraceError = Unavailable(f"took over {within.total_seconds():.3g} s")
            return self._degraded(ranked, "late", error)
        except HeadraceError as error:
            return self._degraded(ranked, "failed", error)
        metrics.RERANKS.inc(outcome="reranked")
        if relevances.usage is not None:
            self._enter(project_id, self._reranker.model, relevances.usage)
        return _ordered(ranked, compared, relevances, query.min_relevance)

    async def close(self) -> None:
        """Finish the entries in the ledger, and release the reranker."""
        await asyncio.gather(*self._entries, return_exceptions=True)
        if self._reranker is not None:
            await self._reranker.close()

    async def _relevances(
        self, reranker: Reranker, query: Query, texts: Sequence[str]
    ) -> Relevances:
        if not texts:
            return Relevances(np.empty(0))
        await reranker.load()
        if reranker.provider and not self._is_announced:
            self._is_announced = True
            log.warning("rerank.sends_texts", provider=reranker.provider, model=reranker.model)
        return await reranker.rerank(searchable(query.text), texts)

    def _degraded(self, ranked: Sequence[Fused], outcome: str, error: HeadraceError) -> Ranked:
        log.warning("query.not_reranked", error=str(error))
        metrics.RERANKS.inc(outcome=outcome)
        return Ranked(ranked, is_degraded=True)

    def _enter(self, project_id: int, model: str, usage: Usage) -> None:
        """Enter a request in the ledger, while the answer is already on its way."""
        if self._costs is not None:
            task = asyncio.create_task(_entered(self._costs, project_id, model, usage))
            self._entries.add(task)
            task.add_done_callback(self._entries.discard)


async def _entered(costs: RerankCosts, project_id: int, model: str, usage: Usage) -> None:
    try:
        await costs.add(project_id, model, usage)
    except HeadraceError as error:
        log.warning("rerank.cost_not_entered", model=model, error=str(error))


def _ordered(
    ranked: Sequence[Fused],
    compared: Sequence[Fused],
    relevances: Relevances,
    least: float | None,
) -> Ranked:
    """Most relevant first, ties in fused order."""
    values = [float(value) for value in relevances.values]
    order = sorted(range(len(compared)), key=lambda index: (-values[index], index))
    first = [compared[index]._replace(reranked=values[index]) for index in order]
    if least is not None:
        kept = [chunk for chunk in first if (chunk.reranked or 0.0) >= least]
        return Ranked(kept, is_filtered=len(kept) < len(ranked))
    moved = {chunk.chunk_id for chunk in compared}
    return Ranked([*first, *(chunk for chunk in ranked if chunk.chunk_id not in moved)])


def _text(row: ChunkRow) -> str:
    """Text of a chunk under its title and its place in the document."""
    place = row.symbol or " > ".join(row.heading_path)
    return "\n".join(filter(None, [row.title or row.uri, place, row.content]))
