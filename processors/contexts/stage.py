"""Last stage of indexing: writes contexts for chunks that are searchable already.

read → ask → cache → embed → apply, window by window. A process that is killed loses at most the
answers that were not cached yet.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from processors.contexts.budget import Budget, OverBudget
from processors.contexts.models import Answer, ContextModel, ContextModels, Messages
from processors.contexts.prompt import PROMPT_VERSION, answer_tokens, messages, sentences_of
from processors.contexts.windows import context_of, embedded_text, key_of, windows_of
from processors.embedders.embedder import Embedder, Urgency
from processors.embedding.keyword_precedence import Precedence
from processors.embedding.single_flight import SharedEmbedding
from runtime import metrics, traces
from runtime.errors import CircuitOpen, ConfigurationError, UnsupportedContent
from runtime.failpoints import failpoint
from store.documents.contexts import Author, Context, Contexts, StoredChunk, StoredDocument
from store.documents.costs import Costs, Usage
from store.generations.catalog import Generation
from store.postgres.locks import EVERY_PROJECT, Lock
from store.postgres.pool import Database
from store.store import Store

__all__ = ["ContextLimits", "ContextProgress", "ContextStage"]

log = structlog.get_logger(__name__)

_PAGE_DOCUMENTS = 16
"""Documents at once. Other processes may spend between two pages."""

_ATTEMPTS = 2
"""Requests for a sentence: what the second answer lacks too, goes without a context."""

_ENDING = (CircuitOpen, ConfigurationError)
"""Failures that concern all documents; any other leaves the next documents their turn."""


class EmbeddingModels(Protocol):
    """The models that recipes name."""

    async def loaded(self, model: str) -> Embedder:
        """Return the model of a full name with its limits loaded."""
        ...


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """Most tokens of one window, and the budget of a day in US dollars; None means no budget."""

    window_tokens: int = 12_000
    budget_usd_per_day: float | None = None


@dataclass
class ContextProgress:
    """Result of a run: chunks that got a context, and documents that continue to wait.

    ``postponed`` counts documents by reason: ``budget`` (it is spent) or ``price`` (it is not
    known, so that the budget cannot be kept). The documents of two reasons are not counted:
    ``busy`` (another process writes contexts) and ``vectors`` (they wait for vectors first).
    ``failure`` is the first error of a model or a server.
    """

    chunks: int = 0
    postponed: dict[str, int] = field(default_factory=dict)
    failure: Exception | None = None


@dataclass(frozen=True)
class _Work:
    """Parts of the work that all documents of a page share."""

    project: str
    generation: Generation
    author: Author
    model: ContextModel
    budget: Budget


class ContextStage:
    """Writes the contexts of one generation, whose recipe names the language model.

    One process at a time asks for contexts, so that the budget is kept.

    Args:
        database: Postgres.
        store: knows which vectors are cached.
        models: the language models.
        embedding_models: the embedding models; their tokenizers measure sentences.
        shared_embedding: embeds the texts with their contexts.
        limits: size of windows, and the budget.
        precedence: makes this work wait for the indexer of this process.
    """

    def __init__(
        self,
        database: Database,
        store: Store,
        models: ContextModels,
        embedding_models: EmbeddingModels,
        shared_embedding: SharedEmbedding,
        limits: ContextLimits,
        precedence: Precedence | None = None,
    ) -> None:
        self._database = database
        self._contexts = Contexts(database)
        self._costs = Costs(database)
        self._store = store
        self._models = models
        self._embedding_models = embedding_models
        self._shared_embedding = shared_embedding
        self._limits = limits
        self._precedence = precedence or Precedence()

    async def run(
        self, project: str, generation: Generation, *, wait: bool = False
    ) -> ContextProgress:
        """Pass once over the documents that wait for contexts, whose vectors are complete.

        What cannot be asked for now continues to wait; cached contexts are written all the same.
        ``wait``: wait for another process that writes contexts, instead of leaving the rest to it.

        Raises:
            ConfigurationError: the language model has no key, or is unknown.
            Unavailable: Postgres cannot be reached.
        """
        progress = ContextProgress()
        last_id = 0
        while not isinstance(progress.failure, _ENDING):
            if not await self._contexts.waiting(generation, last_id, 1):
                break
            await self._precedence.wait()
            async with self._turn(wait=wait) as is_held:
                if not is_held:
                    progress.postponed["busy"] = 0
                    break
                page = await self._contexts.waiting(generation, last_id, _PAGE_DOCUMENTS)
                await self._write_page(project, generation, page, progress)
            last_id = page[-1] if page else last_id
        if (
            progress.failure is None
            and not progress.postponed
            and await self._contexts.any_wait(generation)
        ):
            progress.postponed["vectors"] = 0
        return progress

    @asynccontextmanager
    async def _turn(self, *, wait: bool) -> AsyncIterator[bool]:
        async with (
            self._database.connection() as connection,
            Lock.CONTEXTS.holding(connection, EVERY_PROJECT, wait=wait) as is_held,
        ):
            yield is_held

    async def _write_page(
        self,
        project: str,
        generation: Generation,
        document_ids: Sequence[int],
        progress: ContextProgress,
    ) -> None:
        name = generation.recipe.context
        spent_usd = await self._costs.of_contexts_today()
        work = _Work(
            project,
            generation,
            Author(name, PROMPT_VERSION),
            await self._models.model(name),
            Budget(self._limits.budget_usd_per_day, spent_usd),
        )
        results = await asyncio.gather(
            *(self._write_document(work, document_id, progress) for document_id in document_ids),
            return_exceptions=True,
        )
        for error in results:
            if isinstance(error, OverBudget):
                progress.postponed[error.reason] = progress.postponed.get(error.reason, 0) + 1
            elif isinstance(error, Exception):
                is_first = progress.failure is None or isinstance(error, _ENDING)
                progress.failure = error if is_first else progress.failure
            elif error is not None:
                raise error

    async def _write_document(
        self, work: _Work, document_id: int, progress: ContextProgress
    ) -> None:
        """Write the contexts of one document, window by window.

        Raises:
            OverBudget: a window has to wait; the cached contexts of the others are written.
            HeadraceError: a model or a server failed; the windows before are done.
        """
        document = await self._contexts.document(work.generation, document_id)
        if document is None:
            return
        over_budget: OverBudget | None = None
        for window in windows_of(document.chunks, self._limits.window_tokens):
            if not any(chunk.waits for chunk in window):
                continue
            try:
                written = await self._write_window(work, document, window)
                progress.chunks += written  # after the wait, in which others add to it
            except OverBudget as error:
                over_budget = over_budget or error
        if over_budget is not None:
            raise over_budget

    async def _write_window(
        self, work: _Work, document: StoredDocument, window: Sequence[StoredChunk]
    ) -> int:
        """Write the contexts of one window, and return the number of chunks that got one."""
        waiting = {chunk.chunk_id: key_of(document, chunk) for chunk in window if chunk.waits}
        sentences: dict[bytes, str | None] = dict(
            await self._contexts.cached(work.generation, work.author, set(waiting.values()))
        )
        over_budget: OverBudget | None = None
        wanted = set(waiting.values()) - sentences.keys()
        if wanted:
            try:
                sentences |= await self._ask(work, document, window, wanted)
            except OverBudget as error:
                over_budget = error
        chunks = {chunk.chunk_id: chunk for chunk in window}
        contexts: dict[int, Context | None] = {}
        for chunk_id, key in waiting.items():
            if key in sentences:
                sentence, chunk = sentences[key], chunks[chunk_id]
                contexts[chunk_id] = (
                    None if sentence is None else context_of(document, chunk, sentence)
                )
        refused = await self._embed(work, document, chunks, contexts)
        failpoint("contexts.embedded")
        written = await self._contexts.apply(
            work.generation, document.document_id, contexts | dict.fromkeys(refused)
        )
        failpoint("contexts.applied")
        metrics.CONTEXTS_WRITTEN.inc(written, model=work.author.model, project=work.project)
        if over_budget is not None:
            raise over_budget
        return written

    async def _ask(
        self,
        work: _Work,
        document: StoredDocument,
        window: Sequence[StoredChunk],
        wanted: Collection[bytes],
    ) -> dict[bytes, str | None]:
        """Ask for the wanted sentences by key; None for those that no answer contains.

        Raises:
            OverBudget: the request could exceed the budget, or its price is not known.
            HeadraceError: the model or Postgres failed. What was answered before is cached.
        """
        # equal chunks of one document share a sentence
        numbers = {
            key_of(document, chunk): number
            for number, chunk in enumerate(window, start=1)
            if chunk.waits
        }
        missing = {key: number for key, number in numbers.items() if key in wanted}
        sentences: dict[bytes, str | None] = {}
        for _ in range(_ATTEMPTS):
            request = messages(document.title, window, missing.values())
            try:
                answer = await self._answer(work, document, request, len(missing))
            except UnsupportedContent as error:
                log.warning("contexts.refused", project=work.project, reason=str(error))
                break
            model = next((chunk.model for chunk in window if chunk.model), "")
            count = (await self._embedding_models.loaded(model)).count_tokens if model else None
            valid = await asyncio.to_thread(
                sentences_of, answer.text, missing.values(), count or work.model.count_tokens
            )
            new = {key: valid[number] for key, number in missing.items() if number in valid}
            await self._contexts.remember(
                work.generation, work.author, new, {document.log_position.token: answer.usage}
            )
            failpoint("contexts.cached")
            sentences |= new
            missing = {key: number for key, number in missing.items() if key not in new}
            if not missing:
                return sentences
        log.info("contexts.missing", project=work.project, chunks=len(missing))
        return sentences | dict.fromkeys(missing)

    async def _answer(
        self, work: _Work, document: StoredDocument, request: Messages, sentences: int
    ) -> Answer:
        """Send one request, if the budget allows it; enter what timed out into the ledger."""
        text = json.dumps(request, ensure_ascii=False)
        tokens_in = (await asyncio.to_thread(work.model.count_tokens, [text]))[0]
        most_tokens = answer_tokens(sentences)
        lost: list[Usage] = []
        try:
            with work.budget.reserved(work.model.most_usd(tokens_in, most_tokens)) as reservation:
                with traces.child("write contexts"):
                    answer = await work.model.ask(request, tokens_in, most_tokens, lost)
                if answer.usage.cost_usd is not None:
                    reservation.cost_usd = answer.usage.cost_usd
        finally:
            if lost:
                usage = sum(lost, Usage())
                work.budget.spend(usage.cost_usd or 0.0)
                usages = {document.log_position.token: usage}
                await self._contexts.remember(work.generation, work.author, {}, usages)
        labels = {"model": work.author.model, "project": work.project}
        metrics.CONTEXT_COST_USD.inc(answer.usage.cost_usd or 0.0, **labels)
        return answer

    async def _embed(
        self,
        work: _Work,
        document: StoredDocument,
        chunks: Mapping[int, StoredChunk],
        contexts: Mapping[int, Context | None],
    ) -> set[int]:
        """Put the vectors of texts with their contexts into the cache; return refused chunks."""
        by_model: dict[str, dict[bytes, str]] = {}
        for chunk_id, context in contexts.items():
            chunk = chunks[chunk_id]
            if context is not None and chunk.model:
                texts = by_model.setdefault(chunk.model, {})
                texts[context.content_hash] = embedded_text(chunk, context.sentence)
        refused: set[bytes] = set()
        for model, texts in by_model.items():
            cached = await self._store.known_hashes(work.project, model, list(texts))
            missing = {key: text for key, text in texts.items() if key not in cached}
            if missing:
                payers = dict.fromkeys(missing, document.log_position)
                embedded = await self._shared_embedding.embed(
                    work.project, model, missing, Urgency.BULK, payers
                )
                refused |= embedded.refused.keys()
        return {
            chunk_id
            for chunk_id, context in contexts.items()
            if context is not None and context.content_hash in refused
        }
