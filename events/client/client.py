"""Public client: publish changes, wait for their outcomes, ask questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any, Literal, Self

from pydantic import ValidationError
from redis.asyncio import Redis

from events.client.documents import DocumentMethods
from events.client.follow import follow
from events.client.outcomes import Outcome, Outcomes
from events.client.publisher import INLINE_LIMIT_BYTES, ContentStore, Publisher, Receipt
from events.client.questions import Asker
from events.deployment import check_partitions, read_stamp, use_stamp
from events.models import (
    ContentReference,
    DocumentChange,
    DocumentChanged,
    Filters,
    Like,
    QueryAnswer,
    QueryJudged,
    QueryJudgedData,
    Weights,
    first_problem,
)
from events.names import Lane, Names
from events.outbox import Outbox
from events.server.connection import connect, retrying
from events.signatures import SigningKey
from runtime.errors import Unavailable, UsageError

__all__ = ["TIMEOUT", "Client"]

TIMEOUT = timedelta(seconds=10)


class Client(DocumentMethods):
    """A client of one deployment; it needs only Redis.

    Use it as ``async with Client.connect(url) as client``. One client serves any number of
    concurrent calls of one event loop.
    """

    def __init__(
        self,
        redis: Redis,
        reader: Redis,
        names: Names,
        *,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
        content_store: ContentStore | None = None,
        outbox: Outbox | None = None,
        signing_key: SigningKey | None = None,
        learns: bool = False,
    ) -> None:
        self._redis = redis
        self._reader = reader
        self._names = names
        self._learns = learns
        self._knows_deployment = False
        self._publisher = Publisher(
            redis,
            names,
            inline_limit_bytes=inline_limit_bytes,
            content_store=content_store,
            outbox=outbox,
            signing_key=signing_key,
        )
        self._outcomes = Outcomes(reader, names)
        self._asker = Asker(redis, reader, names)

    @classmethod
    def connect(
        cls,
        redis_url: str,
        *,
        prefix: str = "headrace",
        partitions: int | None = None,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
        content_store: ContentStore | None = None,
        outbox: Outbox | None = None,
        signing_key: str | None = None,
    ) -> Self:
        """Create a client of the deployment with this prefix.

        Nothing is sent before the first call. Each call raises ConfigurationError if the
        deployment never had the number ``partitions``. If this is None, the client reads the number
        from the deployment, and uses 1 before the first worker has started. It follows a raise.
        ``outbox`` is needed to publish durably, and ``signing_key`` (``<id>:<secret>``) to publish
        to projects that accept signed changes only.

        Raises:
            ConfigurationError: the URL is not a Redis URL, or the key is not a signing key.
        """
        return cls(
            connect(redis_url),
            connect(redis_url, blocking=True),
            Names(prefix, partitions or 1),
            inline_limit_bytes=inline_limit_bytes,
            content_store=content_store,
            outbox=outbox,
            signing_key=SigningKey.parse(signing_key) if signing_key else None,
            learns=partitions is None,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the readers and close the connections."""
        await self._asker.close()
        await self._redis.aclose()
        await self._reader.aclose()

    async def publish(
        self,
        change: DocumentChange | DocumentChanged,
        lane: Lane = Lane.LIVE,
        *,
        durable: bool = False,
    ) -> Receipt:
        """Publish one change.

        A ``DocumentChange`` becomes an event with a new id. To repeat a call safely after the
        process ended, publish a ``DocumentChanged`` with an id of your own.

        Raises:
            Unavailable: Redis could not be reached for 10 s; or the change is durable and Postgres
                can't be reached.
            LogFull: Redis is near its memory limit.
            LimitExceeded: the content exceeds the inline limit, and no content store is set.
            EventIdReused: the event's id was published with another change within 24 hours.
            ConfigurationError: the deployment has another number of partitions, Redis refused the
                user, or the change is durable and no outbox is set.
        """
        await self._know_before_publishing(durable=durable)
        return await self._publisher.publish(_event_of(change), lane, durable=durable)

    async def publish_many(
        self,
        changes: Iterable[DocumentChange | DocumentChanged],
        lane: Lane = Lane.LIVE,
        *,
        durable: bool = False,
    ) -> list[Receipt]:
        """Publish changes, up to 256 (or 4 MiB) per round trip; return receipts in their order.

        A call that raises may have published some of its changes. Publishing all of them again is
        safe. Errors are those of ``publish``. EventIdReused lists the refused events as
        ``event_ids``; all others of the call are published then.
        """
        await self._know_before_publishing(durable=durable)
        events = map(_event_of, changes)
        return await self._publisher.publish_many(events, lane, durable=durable)

    async def ask(
        self,
        project: str,
        text: str | None = None,
        *,
        like: str | Like | None = None,
        agent: str | None = None,
        limit: int = 10,
        mode: Literal["hybrid", "vector", "keyword", "exact"] = "hybrid",
        operators: bool = False,
        regex: bool = False,
        ignore_case: bool = False,
        whole_words: bool = False,
        context_lines: int = 0,
        per_file: bool = False,
        after: str | None = None,
        weights: Weights | None = None,
        filters: Filters | None = None,
        min_event: str | None = None,
        overlay: str | None = None,
        vectors: bool = False,
        max_wait: timedelta = timedelta(seconds=5),
        explain: bool = False,
        context_tokens: int | None = None,
        context_tokenizer: str | None = None,
        min_similarity: float | None = None,
        rerank: bool = True,
        min_relevance: float | None = None,
        group: Literal["chunk", "document"] = "chunk",
        sections: bool = False,
        diversity: float = 0.0,
        timeout: timedelta = TIMEOUT,
    ) -> QueryAnswer:
        """Return the answer of the worker that takes the question.

        Args:
            project: the project to search.
            text: question, at most 2,000 characters.
            like: in place of a text: the id of a chunk, or its place as ``path:12``.
            agent: also search documents that are private to this agent.
            limit: number of results, at most 100.
            mode: retrievers to use; ``exact`` finds the lines that match ``text`` instead.
            operators: read ``path:``, ``lang:``, ``symbol:``, ``kind:``, ``"a phrase"`` and
                ``-word`` in the text as filters.
            regex: in the mode ``exact``: ``text`` is a regular expression, not a literal.
            ignore_case: in the mode ``exact``: letters of either case match.
            whole_words: in the mode ``exact``: no letter, digit or underscore is next to a match.
            context_lines: in the mode ``exact``: lines before and after a match, at most 20.
            per_file: in the mode ``exact``: only the first result of each document.
            after: in the mode ``exact``: ``next`` of the answer before.
            weights: weight of each retriever in the fusion.
            filters: conditions on the documents to search.
            min_event: token of a receipt; the answer must reflect that change.
            overlay: name of an overlay: search the versions of its work tree or branch.
            vectors: also wait until the vectors of that change are searchable.
            max_wait: longest wait for ``min_event`` before a stale answer is returned.
            explain: add an explanation to each result.
            context_tokens: also assemble a context of this many tokens.
            context_tokenizer: tokenizer that counts them, or an OpenAI model that uses it, such as
                ``o200k_base`` or ``gpt-4o``. The default is that of the embedding model.
            min_similarity: least cosine similarity of a result to the question, 0 to 1. A chunk
                without a vector is not a result then. Not for the mode ``keyword``.
            rerank: let the workers' reranker, if they have one, order the results.
            min_relevance: least relevance of a result by the reranker, 0 to 1. An answer without
                results is marked ``weak`` then.
            group: with ``document``, each result is the best passage of a document, with the places
                of its other matches, and ``limit`` counts documents.
            sections: rank code and other documents apart, each with up to ``limit`` results; each
                result names its ``section``. Without effect if the filters name kinds.
            diversity: 0 to 1; the higher, the more the results differ from each other. 0 is off.
            timeout: deadline of the query.

        Raises:
            QueryRefused: the reply is ``query.failed``; ``problem`` gives the reason, and
                ``problem.retryable`` is true if the question may be asked again.
            UsageError: an argument is out of its limits.
            Unavailable: no reply arrived in time, or Redis can't be reached.
        """
        query = {
            **({} if text is None else {"text": text}),
            "like": like,
            "limit": limit,
            "mode": mode,
            "operators": operators,
            "regex": regex,
            "ignore_case": ignore_case,
            "whole_words": whole_words,
            "context_lines": context_lines,
            "per_file": per_file,
            "after": after,
            "weights": weights,
            "filters": filters or Filters(),
            "min_event": min_event,
            "overlay": overlay,
            "vectors": vectors,
            "max_wait_ms": int(max_wait.total_seconds() * 1000),
            "explain": explain,
            "context_tokens": context_tokens,
            "context_tokenizer": context_tokenizer,
            "min_similarity": min_similarity,
            "rerank": rerank,
            "min_relevance": min_relevance,
            "group": group,
            "sections": sections,
            "diversity": diversity,
        }
        return await self._ask(project, agent, query, timeout)

    async def judge(
        self,
        project: str,
        query_id: str,
        chunk_id: int,
        verdict: Literal["shown", "opened", "used", "rejected"],
        *,
        rank: int | None = None,
        agent: str | None = None,
        event_id: str | None = None,
    ) -> str:
        """Publish what became of one result of an answer; return the id of the event.

        A worker keeps it if project and agent are those of the question, the answer has the chunk,
        and the answer came within the last hour. Otherwise it is left out.

        Args:
            project: the project that was asked.
            query_id: ``query_id`` of the answer.
            chunk_id: ``chunk_id`` of the result.
            verdict: what was done with the result.
            rank: where the result was shown, from 1; by default its rank in the answer.
            agent: the agent that asked.
            event_id: id of the event, which counts once; by default a new one.

        Raises:
            UsageError: an argument is out of its limits.
            Unavailable: Redis could not be reached for 10 s.
            LogFull: Redis is near its memory limit.
            ConfigurationError: the deployment has another number of partitions.
        """
        fields = {"query_id": query_id, "chunk_id": chunk_id, "verdict": verdict, "rank": rank}
        try:
            data = QueryJudgedData.model_validate({**fields, "project": project, "agent": agent})
            named = {} if event_id is None else {"id": event_id}
            judged = QueryJudged.model_validate({**named, "type": QueryJudged.TYPE, "data": data})
        except ValidationError as error:
            raise UsageError(f"judgement: {first_problem(error)}") from None
        await retrying(self._know_deployment)
        await self._asker.judge(judged)
        return judged.id

    async def _ask(
        self, project: str, agent: str | None, fields: dict[str, Any], timeout: timedelta
    ) -> QueryAnswer:
        await self._know_before_asking(timeout)
        # left out if false: a worker of a version without the field refuses it
        query = fields | {"project": project, "agent": agent, "vectors": fields["vectors"] or None}
        return await self._asker.ask(query, timeout)

    def outcomes(
        self,
        receipts: Iterable[Receipt],
        patience: timedelta = TIMEOUT,
        *,
        vectors: bool = False,
    ) -> AsyncIterator[Outcome]:
        """Yield the outcome of each receipt's change once, in order of arrival.

        With ``vectors``, ``DocumentEmbedded`` follows for each change that has chunks pending.

        Raises:
            Unavailable: no outcome arrived for as long as ``patience``.
        """
        return follow(self._outcomes, receipts, patience, vectors=vectors)

    async def wait(
        self,
        receipts: Iterable[Receipt],
        timeout: timedelta = TIMEOUT,
        *,
        vectors: bool = False,
    ) -> dict[str, Outcome]:
        """Return the outcome of each receipt's change, by token.

        With ``vectors``, return when the vectors are made too.

        Raises:
            Unavailable: some changes have no outcome in time.
        """
        outcomes: dict[str, Outcome] = {}
        wanted = list(receipts)
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                async for outcome in follow(self._outcomes, wanted, timeout, vectors=vectors):
                    outcomes[outcome.data.token] = outcome
        except TimeoutError:
            raise Unavailable(
                f"{len(outcomes)} of {len(wanted)} changes have an outcome after "
                f"{timeout.total_seconds():g} s",
                "check that workers run",
            ) from None
        return outcomes

    async def keep_content(self, project: str, content: str | bytes) -> ContentReference:
        """Store content that is too big for any event, for a change with ``content_ref``.

        Raises:
            LimitExceeded: no content store is set, or the content is too big for it.
            Unavailable: the content store can't be reached.
        """
        return await self._publisher.keep_content(project, content)

    async def _know_before_publishing(self, *, durable: bool) -> None:
        """Learn the deployment; a durable event is kept first and published when Redis is back."""
        try:
            await retrying(self._know_deployment)
        except Unavailable:
            if not durable:
                raise

    async def _know_before_asking(self, timeout: timedelta) -> None:
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await retrying(self._know_deployment, timeout)
        except TimeoutError:
            raise Unavailable(
                f"Redis did not respond within {timeout.total_seconds():g} s", "check that it runs"
            ) from None

    async def _know_deployment(self) -> None:
        """Compare the partitions once: a change in a partition without a reader would be lost."""
        if self._knows_deployment:
            return
        stamp = await read_stamp(self._redis, self._names)
        if stamp is None or self._knows_deployment:
            return
        chosen = None if self._learns else self._names.partitions
        check_partitions(stamp.partitions, chosen, stamp.raises)
        use_stamp(self._names, stamp)
        self._knows_deployment = True


def _event_of(change: DocumentChange | DocumentChanged) -> DocumentChanged:
    return change if isinstance(change, DocumentChanged) else DocumentChanged(data=change)
