"""Preparation of changes for the write into one generation: resolve → cut → embed.

A document that cannot be processed fails alone. ``ResolvedDocument``, ``CutDocument`` and
``EmbeddedDocument`` are a document after each step.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from content.detection import SizeLimits, detect, may_be_binary
from events.models import DocumentChange, Kind, content_hash
from events.streams.changes import LoggedChange
from processors.chunking.registry import Chunking
from processors.chunking.sandbox.pool import ChunkingPool
from processors.chunking.types import Boundaries, Chunk, Cut, Source
from processors.embedders.embedder import Embedder, Urgency
from processors.indexing.sentence_distances import AskedDocument, SentenceDistances
from runtime import metrics, protocol_limits
from runtime.errors import HeadraceError, LimitExceeded, MalformedEvent, Poison
from runtime.traces import staged
from store.generations.catalog import Generation, Recipe
from store.search.keyword.tokenizer import require_known_terms
from store.types import ChunkWrite, DocumentWrite, Vector

__all__ = [
    "CONTEXT_TOKENS",
    "CutDocument",
    "Cutter",
    "EmbeddedDocument",
    "Failure",
    "FetchContent",
    "Models",
    "Prepared",
    "Preparer",
    "ResolvedDocument",
    "Resolver",
    "VectorStep",
    "text_hash",
]


CONTEXT_TOKENS = 64
"""Tokens of a chunk that are kept free for its context: 60, and those between the parts."""


class VectorStep(Protocol):
    """The last step before the write: adds the vectors that are available by then."""

    async def embed(
        self, documents: Sequence[CutDocument], generation: Generation, urgency: Urgency
    ) -> Sequence[EmbeddedDocument]:
        """Return documents ready to be written to a generation, in the order given."""
        ...


Group = tuple[Sequence[LoggedChange], Generation]
"""Changes of one project, and the generation that they are prepared for."""


@dataclass(frozen=True)
class Prepared:
    """Documents that can be written, and changes that failed."""

    documents: Sequence[EmbeddedDocument]
    failures: Sequence[Failure]


class Preparer:
    """The steps before the write, by a generation's recipe."""

    def __init__(self, resolver: Resolver, cutter: Cutter, embedding: VectorStep) -> None:
        self._resolver = resolver
        self._cutter = cutter
        self._embedding = embedding

    async def prepare(
        self, changes: Sequence[LoggedChange], generation: Generation, urgency: Urgency
    ) -> Prepared:
        """Turn every change into a write to ``generation``, in no particular order.

        Raises:
            OperatorError: the recipe names an unknown chunking or version of keyword terms, or a
                model without its key.
            Unavailable: a server or a model is down. If only the documents that are cut by topic
                need the model, they become failures.
        """
        return (await self.prepare_groups([(changes, generation)], urgency))[0]

    async def prepare_groups(self, groups: Sequence[Group], urgency: Urgency) -> list[Prepared]:
        """Prepare changes of several projects, and cut documents of equal recipes together.

        Each project occurs once. Raises as ``prepare``, if any group does.
        """
        for changes, generation in groups:
            if changes:
                require_known_terms(changes[0].event.data.project, generation)
        prepared: dict[int, Prepared] = {}
        for indexes in _by_recipe(groups):
            changes = [change for index in indexes for change in groups[index][0]]
            cut, failures = await self._cut(changes, groups[indexes[0]][1].recipe, urgency)
            with metrics.INDEXING_STAGE_SECONDS.time(stage="embed"):
                for index in indexes:
                    prepared[index] = await self._embed(groups[index], cut, failures, urgency)
        return [prepared[index] for index in range(len(groups))]

    async def _embed(
        self,
        group: Group,
        cut: Sequence[CutDocument],
        failures: Sequence[Failure],
        urgency: Urgency,
    ) -> Prepared:
        """Embed the documents of a group, which are among those of several groups."""
        changes, generation = group
        project = changes[0].event.data.project if changes else None
        documents = [document for document in cut if document.resolved.data.project == project]
        return Prepared(
            await self._embedding.embed(documents, generation, urgency),
            [failure for failure in failures if failure.change.event.data.project == project],
        )

    async def estimate(
        self, changes: Sequence[LoggedChange], recipe: Recipe
    ) -> tuple[list[CutDocument], list[Failure]]:
        """Resolve and cut changes without any model; raises as ``Cutter.cut``.

        Documents that are cut by topic have about as many chunks as those returned, and their
        ``asked`` sentences.
        """
        return await self._cut(changes, recipe, None)

    async def _cut(
        self, changes: Sequence[LoggedChange], recipe: Recipe, urgency: Urgency | None
    ) -> tuple[list[CutDocument], list[Failure]]:
        with metrics.INDEXING_STAGE_SECONDS.time(stage="resolve"):
            resolved, unresolved = await self._resolver.resolve(changes)
        with metrics.INDEXING_STAGE_SECONDS.time(stage="cut"):
            cut, uncut = await self._cutter.cut(resolved, recipe, urgency)
        return cut, unresolved + uncut


def _by_recipe(groups: Sequence[Group]) -> list[list[int]]:
    """Indexes of the groups, those of equal recipes together."""
    parts: list[tuple[Recipe, list[int]]] = []
    for index, (_, generation) in enumerate(groups):
        for recipe, indexes in parts:
            if recipe == generation.recipe:
                indexes.append(index)
                break
        else:
            parts.append((generation.recipe, [index]))
    return [indexes for _, indexes in parts]


class Models(Protocol):
    """The models that recipes name."""

    async def embedder(self, model: str) -> Embedder:
        """Return the model of a full name, ready for use."""
        ...

    async def loaded(self, model: str) -> Embedder:
        """Return the model of a full name with its limits loaded; it may not be started yet."""
        ...


class Cutter:
    """Cuts documents in child processes, with the limits of a recipe and of each kind's model."""

    def __init__(self, pool: ChunkingPool, models: Models, distances: SentenceDistances) -> None:
        self._pool = pool
        self._models = models
        self._distances = distances

    @staged("cut")
    async def cut(
        self, documents: Sequence[ResolvedDocument], recipe: Recipe, urgency: Urgency | None
    ) -> tuple[list[CutDocument], list[Failure]]:
        """Cut documents into chunks (deletes have none); unparsable ones become failures.

        So do documents that are cut by topic while their model is down. ``urgency`` is that of
        their sentences at the model. With None, their chunks are only an estimate.

        Raises:
            OperatorError: the recipe names an unknown chunking, or a model without its key.
            Unavailable: the parsers cannot be started.
        """
        chunking = Chunking.parse(recipe.chunking)
        cut: list[CutDocument] = []
        by_limit: defaultdict[int, list[ResolvedDocument]] = defaultdict(list)
        for document in documents:
            if document.data.change == "delete":
                cut.append(_document(document, Cut(()), recipe))
                continue
            model = await self._models.loaded(recipe.model_of(document.kind))
            room = CONTEXT_TOKENS if recipe.context else 0
            by_limit[chunking.limit(model.limit_tokens - room)].append(document)
        failures: list[Failure] = []
        asking: defaultdict[tuple[str, str, int], list[_Asking]] = defaultdict(list)
        for limit_tokens, group in by_limit.items():
            sources = [_source(document, recipe, chunking.version) for document in group]
            results = await self._pool.cut(sources, limit_tokens)
            for document, source, result in zip(group, sources, results, strict=True):
                if isinstance(result, Poison):
                    failures.append(Failure(document.change, result))
                elif result.asked and urgency is not None:
                    model_name = recipe.model_of(document.kind)
                    key = document.data.project, model_name, limit_tokens
                    asking[key].append(_Asking(document, source, result))
                else:
                    cut.append(_document(document, result, recipe))
        if urgency is not None:
            for (_, name, limit_tokens), asked in asking.items():
                done, undone = await self._cut_by_topic(asked, name, limit_tokens, urgency)
                cut += done
                failures += undone
        return cut, failures

    async def _cut_by_topic(
        self, group: Sequence[_Asking], model: str, limit_tokens: int, urgency: Urgency
    ) -> tuple[list[CutDocument], list[Failure]]:
        """Cut documents of a project a second time, with the distances between their sentences."""
        project = group[0].document.data.project
        try:
            measured = await self._distances.of(
                project, model, [each.sentences for each in group], urgency
            )
        except HeadraceError as error:
            return [], [Failure(each.document.change, error) for each in group]
        sources = [
            replace(each.source, boundaries=Boundaries(result.distances))
            for each, result in zip(group, measured, strict=True)
        ]
        cut: list[CutDocument] = []
        failures: list[Failure] = []
        results = await self._pool.cut(sources, limit_tokens)
        for each, result, spent in zip(group, results, measured, strict=True):
            if isinstance(result, Poison):
                failures.append(Failure(each.document.change, result))
            else:
                cut.append(CutDocument(each.document, result, model, spent.tokens, spent.cost_usd))
        return cut, failures


@dataclass(frozen=True, slots=True)
class _Asking:
    """A document whose first cut asks for distances."""

    document: ResolvedDocument
    source: Source
    cut: Cut

    @property
    def sentences(self) -> AskedDocument:
        """The sentences, with the content hashes of their vectors."""
        agent = self.document.data.agent
        runs = self.cut.asked
        return AskedDocument(
            runs,
            [[text_hash(text, agent) for text in run] for run in runs],
            self.document.change.log_position,
        )


def _document(document: ResolvedDocument, cut: Cut, recipe: Recipe) -> CutDocument:
    return CutDocument(document, cut, recipe.model_of(document.kind))


def _source(document: ResolvedDocument, recipe: Recipe, version: int) -> Source:
    data = document.data
    return Source(
        data.uri,
        document.content,
        document.kind,
        document.language,
        data.title,
        data.media_type,
        version,
        recipe.strategy_of(data.collections),
    )


FetchContent = Callable[[str, str], Awaitable[bytes]]
"""Fetch the bytes of a content by project and SHA-256 in hex.

Raises ``UnsupportedContent`` if it is missing.
"""


class Resolver:
    """Fetches content that was published by reference."""

    def __init__(self, fetch: FetchContent, sizes: SizeLimits) -> None:
        self._fetch = fetch
        self._sizes = sizes

    @staged("resolve")
    async def resolve(
        self, changes: Sequence[LoggedChange]
    ) -> tuple[list[ResolvedDocument], list[Failure]]:
        """Load the content of changes; those whose content cannot be used become failures."""
        resolved: list[ResolvedDocument] = []
        failures: list[Failure] = []
        for change in changes:
            try:
                resolved.append(await self._resolve(change))
            except Poison as error:
                failures.append(Failure(change, error))
        return resolved, failures

    async def _resolve(self, change: LoggedChange) -> ResolvedDocument:
        data = change.event.data
        if data.change == "delete":
            return ResolvedDocument(change, "", data.kind or Kind.TEXT)
        content = await self._content(data)
        detection = detect(data.uri, data.media_type, content, data.kind)
        if isinstance(content, bytes) and detection.text is not None:
            content = detection.text
        self._check_size(data, content)
        return ResolvedDocument(
            change, content, detection.kind, detection.language, detection.warnings
        )

    async def _content(self, data: DocumentChange) -> str | bytes:
        if data.content_ref is None:
            return data.body or ""
        is_text = not may_be_binary(data.uri, data.media_type, data.kind)
        self._check_bytes(data, data.content_ref.size_bytes, is_text=is_text)
        content = await self._fetch(data.project, data.content_ref.sha256)
        if content_hash(content) != data.content_ref.sha256:
            raise MalformedEvent(
                f"{data.uri}: the stored content does not match the SHA-256 in content_ref"
            )
        return content

    def _check_size(self, data: DocumentChange, content: str | bytes) -> None:
        if isinstance(content, str):
            size = len(content) if content.isascii() else len(content.encode())
            self._check_bytes(data, size, is_text=True)
        else:
            self._check_bytes(data, len(content), is_text=False)

    def _check_bytes(self, data: DocumentChange, size: int, *, is_text: bool) -> None:
        """Check the size of a content; if it may be text or not, the larger limit holds."""
        limits = self._sizes
        most = limits.text_bytes if is_text else max(limits.text_bytes, limits.binary_bytes)
        if size > most:
            setting = "HEADRACE_MAX_DOCUMENT_BYTES" if is_text else "HEADRACE_MAX_BINARY_BYTES"
            raise LimitExceeded(
                f"{data.uri}: {size:,} bytes, over the limit of {most:,}",
                f"split it, or raise {setting}",
            )


@dataclass(frozen=True)
class Failure:
    """A change that cannot be processed, and the reason; it is a Poison if a retry cannot help."""

    change: LoggedChange
    error: HeadraceError


@dataclass(frozen=True)
class ResolvedDocument:
    """A change with its content; ``content`` is empty for a delete.

    ``content`` is the decoded text of a kind of texts, or the bytes of a kind that is extracted.
    """

    change: LoggedChange
    content: str | bytes
    kind: str
    language: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def data(self) -> DocumentChange:
        """Data of the event."""
        return self.change.event.data

    @cached_property
    def content_hash(self) -> str | None:
        """SHA-256 of the content in hex. It is None for a delete."""
        if self.data.change == "delete":
            return None
        if self.data.content_ref is not None:
            return self.data.content_ref.sha256
        return self.data.content_hash or content_hash(self.data.body or "")


@dataclass(frozen=True)
class CutDocument:
    """A document in chunks, with the name of the model that embeds them.

    ``sentence_tokens`` and ``sentence_cost_usd`` were spent on vectors of sentences.
    """

    resolved: ResolvedDocument
    cut: Cut
    model: str
    sentence_tokens: float = 0.0
    sentence_cost_usd: float = 0.0

    @cached_property
    def chunks(self) -> Sequence[Chunk]:
        """Chunks in the order of the document, and its code examples behind them."""
        return (*self.cut.chunks, *self.cut.examples)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of detection and extraction, for the outcome of the change."""
        return (*self.resolved.warnings, *self.cut.warnings)[: protocol_limits.WARNINGS]

    @property
    def asked(self) -> dict[bytes, str]:
        """Sentences whose distances an estimate lacks, by content hash."""
        agent = self.resolved.data.agent
        return {text_hash(text, agent): text for run in self.cut.asked for text in run}

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Text that is embedded for each chunk: its header, then its content."""
        return tuple(f"{c.header}\n{c.content}" if c.header else c.content for c in self.chunks)

    @cached_property
    def hashes(self) -> tuple[bytes, ...]:
        """SHA-256 (32 bytes) of each text and its agent; equal hashes have equal vectors.

        Vectors are looked up by these hashes. The same private text has different hashes for two
        agents: embedding it for one must not reveal whether the other has it.
        """
        agent = self.resolved.data.agent
        return tuple(text_hash(text, agent) for text in self.texts)

    def write(
        self, generation_id: int, vectors: Mapping[bytes, Vector | None] | None = None
    ) -> DocumentWrite:
        """Build the write of this document to a generation. ``vectors`` are by hash of the text.

        A text without a vector gets the cached one when it is written, or waits for one.
        """
        change, data = self.resolved.change, self.resolved.data
        by_hash = vectors or {}
        return DocumentWrite(
            event_id=change.event.id,
            project=data.project,
            agent=data.agent,
            uri=data.uri,
            change=data.change,
            position=change.log_position.position,
            partition=change.log_position.partition,
            published_at=change.event.time,
            old_uri=data.old_uri,
            content_hash=self.resolved.content_hash,
            kind=self.resolved.kind,
            media_type=data.media_type,
            title=data.title or self.cut.title,
            commit=data.commit,
            permalink_template=data.permalink_template,
            collections=data.collections,
            metadata={**self.cut.metadata, **data.metadata},
            chunks=tuple(
                _chunk_write(
                    *(ordinal, chunk, content_hash, self.model, by_hash.get(content_hash)),
                    is_example=ordinal >= len(self.cut.chunks),
                )
                for ordinal, (chunk, content_hash) in enumerate(
                    zip(self.chunks, self.hashes, strict=True)
                )
            ),
            generation_id=generation_id,
            origin=data.origin,
            batch=change.event.batch,
            expected_hash=data.expected_hash,
            warnings=self.warnings,
        )


@dataclass(frozen=True)
class EmbeddedDocument:
    """A document ready to be written, with the cost of its embedding."""

    change: LoggedChange
    write: DocumentWrite
    chunks_embedded: int = 0
    tokens_embedded: int = 0
    cost_usd: float = 0.0


def text_hash(text: str, agent: str | None) -> bytes:
    """SHA-256 (32 bytes) of an embedded text and, if it is private, of its agent.

    An overlay shares the vectors of those who may see what is below it.
    """
    shared = hashlib.sha256(text.encode()).digest()
    owner = (agent or "").partition("/")[0]
    return hashlib.sha256(owner.encode() + b"\0" + shared).digest() if owner else shared


def _chunk_write(
    ordinal: int,
    chunk: Chunk,
    content_hash: bytes,
    model: str,
    vector: Vector | None,
    *,
    is_example: bool,
) -> ChunkWrite:
    return ChunkWrite(
        ordinal=ordinal,
        start_line=chunk.start_line,
        end_line=chunk.end_line,
        content=chunk.content,
        content_hash=content_hash,
        tokens=chunk.tokens,
        model=model,
        vector=vector,
        page=chunk.page,
        locator=chunk.locator,
        symbol=chunk.symbol,
        heading_path=chunk.heading_path,
        header=chunk.header,
        is_example=is_example,
        language=chunk.language,
        surroundings=chunk.surroundings,
    )
