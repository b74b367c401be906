"""Pipeline of questions: from a fresh index to one reply.

fresh → embed → search → fuse → rerank → divide → diversify → group → assemble → reply

The generation is chosen once, when the index is fresh enough: its models embed the question, its
chunks are searched, and its rows are cited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from time import perf_counter
from typing import Any

import structlog
from structlog.contextvars import bound_contextvars

from events.models import (
    Problem,
    Query,
    QueryAnswer,
    QueryAnswered,
    QueryFailed,
    QueryFailedData,
    QueryRequested,
)
from events.streams.answer_records import AnswerRecord
from events.streams.replies import Replies
from processors.admission import Limits
from processors.answering.adjustments import adjustments
from processors.answering.calibration import WEAK_BELOW, confidence_of, spreads_of
from processors.answering.candidates import all_candidates, first_candidates, request_of
from processors.answering.definitions import names_in, promotions
from processors.answering.diversity import diversified_chunks
from processors.answering.exact import answer_exactly
from processors.answering.freshness import Freshness, FreshnessSnapshot
from processors.answering.fusion import Fused, fuse
from processors.answering.query_text import with_operators
from processors.answering.query_vectors import QueryVectors, Vectors, stored_vectors
from processors.answering.relevance import Ranked, RelevanceStep
from processors.answering.results import Assembler
from processors.answering.sections import (
    alternated,
    divided_passages,
    has_sections,
    scarce_candidates,
    with_sections,
)
from processors.answering.timing import Stopwatch, TimeLimiter, time_left
from processors.deliveries import Delivery
from processors.recipes import RecipeNotices
from runtime import metrics, protocol_limits, traces
from runtime.errors import HeadraceError, Retryable, WorkerEnding
from runtime.failpoints import failpoint
from runtime.traces import staged
from store.generations.catalog import Generation
from store.postgres.connection import WriteConflict
from store.search.search import Search
from store.types import Candidates, Subject

__all__ = ["Answering"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Question:
    """A question being answered; a model may take ``embed_within``.

    ``ends_at`` is the end of the asker's patience, by ``perf_counter``.
    """

    query_id: str
    query: Query
    freshness: FreshnessSnapshot
    embed_within: timedelta
    stopwatch: Stopwatch
    ends_at: float

    @property
    def left(self) -> timedelta:
        """Time until the end of the asker's patience."""
        return timedelta(seconds=max(0.0, self.ends_at - perf_counter()))


class Answering:
    """The pipeline of questions.

    ``concurrency`` limits the questions answered at once. Those that wait for ``min_event`` are not
    counted, or a few of them would block all others.
    """

    def __init__(
        self,
        search: Search,
        query_vectors: QueryVectors,
        freshness: Freshness,
        assembler: Assembler,
        notices: RecipeNotices,
        replies: Replies,
        default_deadline: timedelta,
        concurrency: int,
        limits: Limits | None = None,
        relevance: RelevanceStep | None = None,
    ) -> None:
        self._search = search
        self._query_vectors = query_vectors
        self._freshness = freshness
        self._assembler = assembler
        self._notices = notices
        self._replies = replies
        self._default_deadline = default_deadline
        self._limits = limits or Limits()
        self._relevance = relevance or RelevanceStep(None)
        self._slots = asyncio.Semaphore(concurrency)
        self._limiter = TimeLimiter()

    async def run_all(self, deliveries: Sequence[Delivery[QueryRequested]]) -> None:
        """Answer queries one after the other; raises as ``run``."""
        for delivery in deliveries:
            query = delivery.event.data
            with bound_contextvars(query_id=delivery.event.id, project=query.project):
                await self.run(delivery)

    async def run(self, delivery: Delivery[QueryRequested]) -> None:
        """Answer one query, or reply with an error. Exactly one reply per query is recorded.

        Raises:
            Unavailable: the reply cannot be sent, so the query stays pending.
            WorkerEnding: the query waits for a change, and must do so in another worker.
        """
        event = delivery.event
        began_at = perf_counter()
        reply = await self._reply(event, delivery.entry_id)
        failpoint("answering.found")
        await self._replies.reply(
            reply,
            query_id=event.id,
            reply_to=event.data.reply_to,
            entry_id=delivery.entry_id,
            partition=delivery.partition,
            record=_record(event.data, reply),
        )
        failpoint("answering.replied")
        seconds = perf_counter() - began_at
        metrics.QUESTION_SECONDS.observe(seconds, delivery.span, mode=event.data.mode)
        _count(event.data, reply)
        delivery.acknowledge(sent=True)  # the reply's transaction did so

    async def _reply(self, event: QueryRequested, entry_id: str) -> QueryAnswered | QueryFailed:
        try:
            self._limits.check_question(event)
            left = time_left(event, entry_id, self._default_deadline, datetime.now(UTC))
            answer = await self._limiter.run(self.answer(event.id, event.data, left), left)
            return QueryAnswered(data=answer)
        except TimeoutError:
            detail = "no answer before the deadline: ask again with more time or fewer results"
            return _failure(event, Problem(type="DeadlineExceeded", detail=detail, retryable=True))
        except WorkerEnding:
            raise
        except HeadraceError as error:
            retryable = isinstance(error, Retryable)
            problem = Problem(type=error.code, detail=str(error)[:4000], retryable=retryable)
            return _failure(event, problem)
        except Exception:
            log.exception("query.crashed", query_id=event.id)
            detail = "internal error of Headrace: the worker's log has the details"
            return _failure(event, Problem(type="InternalError", detail=detail))

    async def answer(
        self,
        query_id: str,
        query: Query,
        patience: timedelta = protocol_limits.QUERY_DEADLINE,
        generation: Generation | None = None,
    ) -> QueryAnswer:
        """Answer directly, without a stream in between.

        Args:
            query_id: id of the query's event.
            query: the question.
            patience: time that the asker waits. A model may take half of it; after that, a hybrid
                query continues without its vector. A reranker may take half of the rest. Other
                steps have no limit here.
            generation: the generation to search. None means the live one.

        Raises:
            UnknownProject: no project has this name.
            NotFound: the project has no such overlay, or no such chunk.
            Unavailable: Postgres is down, or no retriever could be used.
            UsageError: the query needs a reranker, and there is none.
        """
        ends_at = perf_counter() + patience.total_seconds()
        stopwatch = Stopwatch()
        if query.operators and query.mode != "exact" and query.like is None:
            query = with_operators(query)
        if query.overlay is not None:
            agent = await self._search.overlaid(query.project, query.agent, query.overlay)
            query = query.model_copy(update={"agent": agent})
        freshness = await self._freshness.wait(query)
        stopwatch.lap("wait")
        question = _Question(query_id, query, freshness, patience / 2, stopwatch, ends_at)
        async with self._slots:
            try:
                return await self._answer_from(question, generation)
            except WriteConflict as error:  # a replica cancels what its primary's changes disturb
                log.info("query.conflict", query_id=query_id, error=str(error))
            return await self._answer_from(question, generation)

    async def _answer_from(self, question: _Question, generation: Generation | None) -> QueryAnswer:
        """Answer from a generation, or from the live one; if that is replaced, its successor."""
        if generation is not None:
            return (await self._answer(question, generation))[0]
        query = question.query
        generation = await self._search.live(query.project, may_be_former=query.like is None)
        if generation.id not in self._notices.compared:
            self._notices.compare(query.project, generation)
        answer, is_complete = await self._answer(question, generation)
        if not is_complete:
            current = await self._search.live(query.project)
            if current.id != generation.id:
                return (await self._answer(question, current))[0]
        return answer

    async def _answer(
        self, question: _Question, generation: Generation, *, with_few: bool = True
    ) -> tuple[QueryAnswer, bool]:
        """Return an answer, and False if its generation may have been replaced or dropped.

        ``with_few`` candidates, if they are enough for the results that are wanted.
        """
        query, stopwatch = question.query, question.stopwatch
        if query.mode == "exact":
            fields, is_live = await answer_exactly(self._search, self._assembler, query, generation)
            stopwatch.lap("search")
            return self._answered(question, generation, **fields), is_live
        reranked_chunks = self._relevance.candidates(query)
        subject = None
        if query.like is None:
            vectors, failed = await self._query_vectors.of_query(
                query, generation.recipe.model_names, question.embed_within
            )
        else:
            subject = await self._search.subject(generation, query.agent, query.filters, query.like)
            vectors, failed = stored_vectors(query, subject)
        stopwatch.lap("embed")

        has_few = with_few and not reranked_chunks
        wanted = (first_candidates if has_few else all_candidates)(query)

        async def find(query: Query) -> Candidates:
            return await self._candidates(query, generation, vectors, failed, subject, wanted)

        candidates = await find(query)
        count = partial(self._search.count, generation, query.agent)
        scarce = await scarce_candidates(query, candidates, wanted, find, count)
        stopwatch.lap("search")
        fuse_all = partial(_fused, query, generation, reranked_chunks)
        ranked, places = with_sections(fuse_all(candidates), candidates.places, scarce, fuse_all)
        stopwatch.lap("fuse")
        order = Ranked(ranked)
        if reranked_chunks:
            if has_sections(query):
                ranked = alternated(ranked, places)
            order = await self._relevance.order(
                query,
                generation.project_id,
                ranked,
                partial(self._search.rows, generation, query.agent),
                question.left,
            )
            stopwatch.lap("rerank")
        diversify = partial(diversified_chunks, self._search, generation, query)
        passages = await divided_passages(query, order.chunks, places, diversify)
        if len(passages) < query.limit and len(ranked) >= wanted < all_candidates(query):
            return await self._answer(question, generation, with_few=False)
        confidence = None
        if candidates.coverage == 1:
            best = {model: hits[0][1] for model, hits in candidates.vector.items() if hits}
            confidence = confidence_of(generation.calibration, query.text, best)
        assembled = await self._assembler.assemble(
            query, passages, generation, candidates.term_weights
        )
        stopwatch.lap("assemble")
        answer = self._answered(
            question,
            generation,
            candidates.timings_ms,
            results=assembled.results,
            context=assembled.context,
            coverage=candidates.coverage,
            searched_chunks=candidates.searched_chunks,
            degraded=candidates.degraded + ("rerank",) * order.is_degraded,
            confidence=confidence,
            weak=(order.is_filtered and not passages)
            or (confidence is not None and confidence < WEAK_BELOW),
            corrections=dict(candidates.corrections),
        )
        return answer, assembled.is_complete and candidates.is_live

    def _answered(
        self,
        question: _Question,
        generation: Generation,
        timings_ms: Mapping[str, float] = {},
        **fields: Any,
    ) -> QueryAnswer:
        """Join fields of an answer with those of every answer, and record its times."""
        stopwatch = question.stopwatch
        for stage, milliseconds in stopwatch.milliseconds.items():
            metrics.QUESTION_STAGE_SECONDS.observe(milliseconds / 1000, stage=stage)
        return QueryAnswer(
            query_id=question.query_id,
            project=question.query.project,
            generation=generation.id,
            watermark=question.freshness.watermark,
            stale=question.freshness.stale,
            timings_ms={**stopwatch.milliseconds, **timings_ms},
            **fields,
        )

    @staged("search")
    async def _candidates(
        self,
        query: Query,
        generation: Generation,
        vectors: Vectors,
        failed: tuple[str, ...],
        subject: Subject | None,
        count: int,
    ) -> Candidates:
        request = request_of(query, vectors, subject, count)
        candidates = await self._search.candidates(generation, request)
        return replace(candidates, degraded=tuple(dict.fromkeys(failed + candidates.degraded)))


def _fused(
    query: Query, generation: Generation, reranked_chunks: int, candidates: Candidates
) -> Sequence[Fused]:
    """Fuse all candidates of a question, which is not one of the mode ``exact``."""
    assert query.mode != "exact"
    with traces.child("fuse"):
        return fuse(
            candidates,
            mode=query.mode,
            weights=query.weights,
            limit=max(len(candidates.places) or query.limit, reranked_chunks),
            min_similarity=query.min_similarity,
            spreads=spreads_of(generation),
            promotions=promotions(names_in(query.text), candidates.named),
            adjustments=adjustments(query.text, candidates) if query.mode == "hybrid" else {},
        )


def _record(query: Query, reply: QueryAnswered | QueryFailed) -> bytes:
    """Record of an answer that can be judged: the question has a text, and results to rank.

    Evaluations repeat judged questions, and an overlay may not exist any more then.
    """
    if isinstance(reply, QueryFailed) or not reply.data.results:
        return b""
    if query.like is not None or query.overlay is not None:
        return b""
    searched = with_operators(query) if query.operators else query
    return b"" if searched.mode == "exact" else AnswerRecord.of(searched, reply.data).to_bytes()


def _count(query: Query, reply: QueryAnswered | QueryFailed) -> None:
    answer = reply.data if isinstance(reply, QueryAnswered) else None
    metrics.QUESTIONS.inc(
        outcome="failed" if answer is None else "answered",
        mode=query.mode,
        degraded=str(answer is not None and bool(answer.degraded)).lower(),
        stale=str(answer is not None and answer.stale).lower(),
    )


def _failure(event: QueryRequested, problem: Problem) -> QueryFailed:
    data = QueryFailedData(query_id=event.id, project=event.data.project, problem=problem)
    return QueryFailed(data=data)
