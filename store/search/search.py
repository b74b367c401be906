"""Search in one generation: both retrievers on one connection, and the rows of their results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, NoReturn, TypeVar

import asyncpg
import numpy as np
import numpy.typing as npt
import structlog
from pgvector import HalfVector

from events.models import Filters, Like
from runtime import traces
from runtime.errors import HeadraceError, NotFound, Unavailable
from runtime.intervals import TTLCache
from store.generations import catalog
from store.generations.catalog import Generation, Projects
from store.postgres.named_queries import named
from store.postgres.pool import Database
from store.search.chunk_rows import decoded, rows_of, visible
from store.search.exact import ExactMatches, ExactSearch
from store.search.filters import PLANNED_ONCE, Visibility
from store.search.keyword.retriever import KeywordMatches, KeywordRetriever, WordMatches
from store.search.keyword.tokenizer import TOKENS_VERSION, require_known_terms, terms
from store.search.patterns import Pattern
from store.search.vector_retriever import (
    FAILURES,
    Coverage,
    IndexState,
    StoredModels,
    VectorRetriever,
)
from store.sources import scope_in
from store.types import (
    Candidates,
    ChunkPart,
    ChunkPlace,
    ChunkRow,
    NamedChunk,
    SearchRequest,
    Subject,
)

__all__ = ["EF_SEARCH", "Neighbours", "Search", "UnitBeginning"]

log = structlog.get_logger(__name__)

EF_SEARCH = 100
SUBJECT_TERMS = 15
"""Terms of a chunk by which others are found that are like it: those of highest IDF."""

_LIVE_SECONDS = 2.0
_QUERIES = named("search")
_CONTEXTS = named("contexts")["read_contexts"]
_VECTORS = named("vectors")
_STATE = named("pending")["state"]

Result = TypeVar("Result")
Similar = dict[str, list[tuple[int, float]]]


class UnitBeginning(NamedTuple):
    """A unit whose beginning is looked for above the chunk ``ordinal`` of a document.

    The unit itself has the symbol ``name``; units inside it have symbols that begin with
    ``prefix``.
    """

    document_id: int
    ordinal: int
    name: str
    prefix: str


class Neighbours(NamedTuple):
    """Chunks by (document id, ordinal), and units whose beginnings are looked for."""

    ordinals: Collection[tuple[int, int]]
    beginnings: Collection[UnitBeginning]


@dataclass
class _Run:
    """State of one search: durations, errors, models without a query vector, and the index."""

    timings_ms: dict[str, float] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    unreached: list[str] = field(default_factory=list)
    places: dict[int, ChunkPlace] = field(default_factory=dict)
    state: IndexState = field(default_factory=IndexState)

    async def retrieve(
        self, name: str, search: Coroutine[Any, Any, Result], otherwise: Result
    ) -> Result:
        """Run a retriever; if it fails, record the error and return ``otherwise``."""
        try:
            with self.timed(name):
                return await search
        except FAILURES as error:
            self.errors[name] = error
            log.warning("search.retriever_failed", retrieve=name, error=repr(error))
            return otherwise

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the duration of a block to that of a retriever, and run it within a span."""
        begin = perf_counter()
        try:
            with traces.child(name):
                yield
        finally:
            elapsed_ms = (perf_counter() - begin) * 1000
            self.timings_ms[name] = self.timings_ms.get(name, 0.0) + elapsed_ms

    def fail(self) -> NoReturn:
        """Raise the first error.

        Raises:
            Unavailable: a server failed.
            HeadraceError: the error itself, if it is one.
        """
        error = next(iter(self.errors.values()))
        if isinstance(error, HeadraceError):
            raise error
        raise Unavailable(f"the index cannot be searched: {error}") from error


class Search:
    """Finds chunks. One instance per process, because it caches immutable data."""

    def __init__(self, database: Database, *, ef_search: int = EF_SEARCH) -> None:
        self._database = database
        self._projects = Projects(database)
        self._keyword = KeywordRetriever()
        self._vectors = VectorRetriever(ef_search)
        self._exact = ExactSearch(database, self._keyword)
        self._models = StoredModels()
        self._coverage = Coverage()
        self._live: TTLCache[int, Generation] = TTLCache(_LIVE_SECONDS)

    async def live(self, project: str, *, may_be_former: bool = False) -> Generation:
        """The live generation; a query looks it up once.

        With ``may_be_former``, it may have been replaced in the last two seconds: ``is_live`` of
        the candidates says so.

        Raises:
            UnknownProject: no project has this name.
        """
        project_id = await self._projects.require(project)
        generation = self._live.get(project_id) if may_be_former else None
        if generation is None:
            async with self._database.scope(project_id) as connection:
                generation = await catalog.live(connection, project_id)
            self._live.put(project_id, generation)
        return generation

    async def generation(self, project: str, generation_id: int) -> Generation:
        """A generation of a project by id.

        Raises:
            UnknownProject, NotFound: the project or the generation does not exist.
        """
        project_id = await self._projects.require(project)
        async with self._database.scope(project_id) as connection:
            generation = await catalog.find(connection, project_id, generation_id)
        if generation is None:
            raise NotFound(
                f"project {project} has no generation {generation_id}", "see `headrace replay list`"
            )
        return generation

    async def overlaid(self, project: str, agent: str | None, overlay: str) -> str:
        """The agent by which ``agent`` searches in an overlay, see ``overlay_agent``.

        Raises:
            UnknownProject: no project has this name.
            NotFound: the agent sees no overlay of this name.
        """
        project_id = await self._projects.require(project)
        async with self._database.scope(project_id, agent) as connection:
            return await scope_in(connection, project_id, agent, overlay)

    async def candidates(self, generation: Generation, request: SearchRequest) -> Candidates:
        """Run the requested retrievers on one connection.

        If that fails, each runs on a connection of its own, so that one can do without the other.
        ``degraded`` names each retriever that failed; each model (``vector:<model>``) of which the
        generation has vectors and the query has none; and ``vector`` if some chunks have no vector
        yet. The retrievers may see different snapshots.

        Raises:
            Unavailable, ConfigurationError: every requested retriever failed; or candidates can't
                be compared as requested.
        """
        run = _Run()
        visibility = Visibility.to(generation.id, request.agent, request.filters)
        if visibility.words or visibility.defined:
            prepare = self._prepared(generation, request.agent, visibility)
            visibility = await run.retrieve("keyword", prepare, visibility)
            request = replace(request, narrowed=visibility.narrowed, defining=visibility.defining)
        counting = self._coverage.counting(
            partial(self._scope, generation, request.agent), visibility, request.agent
        )
        vector, keyword = await self._retrieved(generation, request, run)
        asked = {
            name
            for name, wanted in (("vector", request.vectors), ("keyword", request.text is not None))
            if wanted
        }
        if run.errors and run.errors.keys() >= asked:
            run.fail()
        compared: dict[int, float] = {}
        others = _to_compare(request, vector, keyword)
        if others:
            compare = self._compare(generation, request, others)
            compared = await run.retrieve("vector", compare, {})
            if request.compared and "vector" in run.errors:
                run.fail()
        both = bool(keyword.ranked) and any(vector.values())
        candidate_ids = _ids(vector, keyword)
        named_chunks = await run.retrieve(
            "definitions", self._named(generation, request, vector, keyword), {}
        )
        places = {**run.places, **keyword.places}
        bare = ["vector"] if request.vectors and run.state.coverage < 1 else []
        return Candidates(
            vector=vector,
            keyword=keyword.ranked,
            documents={at: places[at].document_id for at in candidate_ids & places.keys()}
            if both
            else {},
            pending=frozenset(at for at, _ in keyword.ranked if keyword.places[at].is_bare)
            if both
            else frozenset(),
            coverage=run.state.coverage,
            compared=compared,
            searched_chunks=await counting.number(),
            degraded=(*run.errors, *run.unreached, *bare),
            corrections=keyword.corrections,
            term_weights=keyword.weights,
            named=named_chunks,
            places=places,
            is_live=run.state.is_live,
            timings_ms={name: run.timings_ms[name] for name in sorted(asked)},
        )

    async def count(self, generation: Generation, agent: str | None, filters: Filters) -> int:
        """Number of chunks that pass filters, as old as ``searched_chunks``; 0 if unknown."""
        visibility = Visibility.to(generation.id, agent, filters)
        scope = partial(self._scope, generation, agent)
        return await self._coverage.counting(scope, visibility, agent).number() or 0

    async def exact(
        self,
        generation: Generation,
        agent: str | None,
        pattern: Pattern,
        filters: Filters,
        **options: Any,
    ) -> ExactMatches:
        """The lines that match a pattern; ``options`` and errors are those of ``ExactSearch``.

        Raises:
            Unavailable: the server failed.
        """
        visibility = Visibility.to(generation.id, agent, filters)
        return await self._exact.find(generation, pattern, visibility, agent, **options)

    async def definitions(
        self, generation: Generation, agent: str | None, filters: Filters, most: int
    ) -> tuple[list[ChunkRow], bool]:
        """The first chunks in path order that pass filters of symbols.

        The second value is False if the generation may have been replaced or dropped.

        Raises:
            Unavailable: the server failed.
        """
        visibility = Visibility.to(generation.id, agent, filters)
        visibility = await self._prepared(generation, agent, visibility)
        async with self._scope(generation, agent, filters) as connection:
            chunk_ids = await visibility.in_path_order(connection, most)
            rows = await rows_of(connection, generation, agent, chunk_ids)
            is_live, _ = await connection.fetchrow(_STATE, generation.id)
        return [rows[chunk_id] for chunk_id in chunk_ids if chunk_id in rows], is_live

    async def subject(
        self, generation: Generation, agent: str | None, filters: Filters, like: Like
    ) -> Subject:
        """The chunk that ``like`` names, with what other chunks are compared by.

        Raises:
            NotFound: the generation has no such chunk, or the agent may not see it.
            Unavailable: Postgres is down.
        """
        async with self._scope(generation, agent) as connection:
            query = "chunk_by_place" if like.chunk_id is None else "chunk_by_id"
            named_by: list[object] = [like.chunk_id]
            if like.chunk_id is None:
                named_by = [like.uri, like.line or 1]
            sql, arguments = visible(query, generation, agent, first_parameter=2 + len(named_by))
            chunk = await connection.fetchrow(sql, generation.id, *named_by, *arguments)
            behind = chunk is not None and like.line is not None and like.line > chunk["last_line"]
            if chunk is None or behind:
                place = like.uri if like.chunk_id is None else f"chunk {like.chunk_id}"
                if behind:
                    place = f"{place}:{like.line}"
                raise NotFound(
                    f"the project has no chunk at {place}",
                    "use a place or a chunk_id of a result; ids change when a document does",
                )
            sql = _QUERIES["vectors_of_chunk"].format(generation_id=int(generation.id))
            rows = await connection.fetch(sql, chunk["id"])
            words = await self._keyword.rarest(
                connection,
                Visibility.to(generation.id, agent, filters),
                dict.fromkeys(terms(chunk["content"])),
                SUBJECT_TERMS,
            )
        return Subject(
            chunk["id"],
            chunk["document_id"] if like.other_documents else None,
            {row["name"]: _unit(row["embedding"]) for row in rows},
            words,
        )

    async def rows(
        self, generation: Generation, agent: str | None, chunk_ids: Sequence[int]
    ) -> dict[int, ChunkRow]:
        """The rows of some chunks by id; deleted or invisible chunks are absent."""
        async with self._scope(generation, agent, Filters()) as connection:
            return await rows_of(connection, generation, agent, chunk_ids)

    async def contexts(
        self, generation: Generation, agent: str | None, chunk_ids: Sequence[int]
    ) -> dict[int, str]:
        """The contexts of some chunks by id; chunks without one, and invisible ones, are absent."""
        async with self._scope(generation, agent, Filters()) as connection:
            rows = await connection.fetch(_CONTEXTS, generation.id, list(chunk_ids))
        return {row["chunk_id"]: row["context"] for row in rows}

    async def rows_and_parts(
        self,
        generation: Generation,
        agent: str | None,
        chunk_ids: Sequence[int],
        needed: Callable[[Mapping[int, ChunkRow]], Neighbours],
    ) -> tuple[dict[int, ChunkRow], list[ChunkPart]]:
        """The rows of some chunks as ``rows``, and other chunks that the rows show to be needed.

        Of a chunk that is only returned because a unit may begin in it, ``content`` may be cut.
        Deleted and invisible chunks are absent.
        """
        async with self._scope(generation, agent, Filters()) as connection:
            rows = await rows_of(connection, generation, agent, chunk_ids)
            ordinals, beginnings = needed(rows)
            if not ordinals and not beginnings:
                return rows, []
            arguments = [[*column] for column in zip(*ordinals, strict=True)] or [[], []]
            arguments += [[*column] for column in zip(*beginnings, strict=True)] or [[], [], [], []]
            parts = await connection.fetch(_QUERIES["unit_parts"], generation.id, *arguments)
        return rows, [ChunkPart(**decoded(part)) for part in parts]

    async def vectors(
        self, generation: Generation, agent: str | None, chunk_ids: Sequence[int]
    ) -> dict[int, tuple[int, npt.NDArray[np.float32]]]:
        """Model id and unit vector of some chunks by id; chunks without a vector are absent."""
        async with self._scope(generation, agent, Filters()) as connection:
            sql = _VECTORS["stored"].format(generation_id=int(generation.id))
            rows = await connection.fetch(sql, list(chunk_ids))
        return {
            row["chunk_id"]: (row["model_id"], row["embedding"].to_numpy().astype(np.float32))
            for row in rows
        }

    async def _retrieved(
        self, generation: Generation, request: SearchRequest, run: _Run
    ) -> tuple[Similar, KeywordMatches]:
        if request.vectors and request.has_words:
            try:
                return await self._together(generation, request, run)
            except FAILURES as error:
                log.info("search.not_together", error=repr(error))
        return await asyncio.gather(
            run.retrieve("vector", self._similar(generation, request, run), {}),
            run.retrieve("keyword", self._worded(generation, request, run), KeywordMatches([])),
        )

    async def _prepared(
        self, generation: Generation, agent: str | None, visibility: Visibility
    ) -> Visibility:
        """Look up the words that the filters need, and the definitions of the symbols."""
        if generation.recipe.tokens != TOKENS_VERSION:
            return visibility
        async with self._scope(generation, agent) as connection:
            visibility = await self._keyword.with_definitions(connection, visibility)
            if not visibility.words:
                return visibility
            having = await self._keyword.having_all(connection, visibility, visibility.words)
            return replace(visibility, narrowed=having)

    async def _together(
        self, generation: Generation, request: SearchRequest, run: _Run
    ) -> tuple[Similar, KeywordMatches]:
        """Run both retrievers on one connection, and read the places of all candidates once."""
        require_known_terms(request.project, generation)
        async with self._scope(
            generation, request.agent, request.filters, request.candidates
        ) as connection:
            # the state of the index comes first: a vector that is written later is not missed
            with run.timed("keyword"):
                matches = await self._match(connection, generation, request)
                run.state = await self._state(connection, generation, request, matches)
            with run.timed("vector"):
                vector = await self._nearest(connection, generation, request, run)
            with run.timed("keyword"):
                keyword = await self._visible(connection, generation, request, run, matches, vector)
        return vector, keyword

    async def _similar(self, generation: Generation, request: SearchRequest, run: _Run) -> Similar:
        if not request.vectors:
            return {}
        async with self._scope(
            generation, request.agent, request.filters, request.candidates
        ) as connection:
            run.state = await self._state(connection, generation, request)
            similar = await self._nearest(connection, generation, request, run)
            chunk_ids = [*_ids(similar, KeywordMatches([]))]
            described = _best(similar, request.described)
            every = Visibility.to(generation.id, request.agent, Filters())
            every = replace(every, is_covered=run.state.is_covered)
            run.places = await every.among(connection, chunk_ids, described)
        return similar

    async def _nearest(
        self,
        connection: asyncpg.Connection,
        generation: Generation,
        request: SearchRequest,
        run: _Run,
    ) -> Similar:
        searched = _searched(generation, request)
        passed_by = await self._models.unreached(
            connection, request.project, generation.id, request.vectors
        )
        run.unreached = [f"vector:{model}" for model in passed_by]
        return {
            model: await self._vectors.search(
                connection, generation.id, model, vector, searched, request.candidates
            )
            for model, vector in request.vectors.items()
        }

    async def _compare(
        self, generation: Generation, request: SearchRequest, chunk_ids: Sequence[int]
    ) -> dict[int, float]:
        """Similarity of some chunks that the vector retriever did not return."""
        compared: dict[int, float] = {}
        async with self._scope(generation, request.agent, Filters()) as connection:
            for model, query_vector in request.vectors.items():
                compared |= await self._vectors.compare(
                    connection, generation.id, model, query_vector, chunk_ids
                )
        return compared

    async def _named(
        self,
        generation: Generation,
        request: SearchRequest,
        vector: Similar,
        keyword: KeywordMatches,
    ) -> dict[int, NamedChunk]:
        """The candidates and the definitions of names by id; empty if none is asked for."""
        if not request.defined:
            return {}
        chunk_ids = {*_ids(vector, keyword), *keyword.definitions}
        async with self._scope(generation, request.agent, Filters()) as connection:
            rows = await connection.fetch(
                _QUERIES["named"], generation.id, list(chunk_ids), list(keyword.definitions)
            )
        columns = "uri", "kind", "symbol", "start_line", "content"
        return {row["id"]: NamedChunk(*(row[column] for column in columns)) for row in rows}

    async def _worded(
        self, generation: Generation, request: SearchRequest, run: _Run
    ) -> KeywordMatches:
        if not request.has_words:
            return KeywordMatches([])
        require_known_terms(request.project, generation)
        async with self._scope(generation, request.agent, request.filters) as connection:
            matches = await self._match(connection, generation, request)
            if not request.vectors:
                run.state = await self._state(connection, generation, request, matches)
            return await self._visible(connection, generation, request, run, matches, {})

    async def _match(
        self, connection: asyncpg.Connection, generation: Generation, request: SearchRequest
    ) -> WordMatches:
        text = request.text if request.subject is None else request.subject.terms
        searched = _searched(generation, request)
        return await self._keyword.match(connection, text or "", searched, request.defined)

    async def _state(
        self,
        connection: asyncpg.Connection,
        generation: Generation,
        request: SearchRequest,
        matches: WordMatches | None = None,
    ) -> IndexState:
        """State of the index, of which ``matches`` have the greater part."""
        visibility = Visibility.to(generation.id, request.agent, request.filters)
        visibility = replace(visibility, defining=request.defining)
        known = None if matches is None else (matches.is_live, matches.is_covered)
        return await self._coverage.state(connection, visibility, request.agent, known)

    async def _visible(
        self,
        connection: asyncpg.Connection,
        generation: Generation,
        request: SearchRequest,
        run: _Run,
        matches: WordMatches,
        vector: Similar,
    ) -> KeywordMatches:
        return await self._keyword.visible(
            connection,
            matches,
            replace(_searched(generation, request), is_covered=run.state.is_covered),
            request.candidates,
            [*_ids(vector, KeywordMatches([]))],
            request.described,
            _best(vector, request.described),
        )

    def _scope(
        self,
        generation: Generation,
        agent: str | None,
        filters: Filters | None = None,
        candidates: int = 0,
    ) -> AbstractAsyncContextManager[asyncpg.Connection]:
        """Enter a scope for statements with these filters; None if they are unknown.

        The settings of all statements are the same, so that the session keeps them.
        """
        settings = self._vectors.settings(candidates)
        if filters is not None and Visibility.to(generation.id, agent, filters).is_plain:
            settings = {**settings, **PLANNED_ONCE}
        return self._database.reading(generation.project_id, agent, generation.id, settings)


def _searched(generation: Generation, request: SearchRequest) -> Visibility:
    visibility = Visibility.to(generation.id, request.agent, request.filters)
    return replace(
        visibility,
        subject=request.subject,
        narrowed=request.narrowed,
        defining=request.defining,
    )


def _ids(vector: Similar, keyword: KeywordMatches) -> set[int]:
    """Chunk ids that any retriever returned."""
    rankings = [*vector.values(), keyword.ranked]
    return {chunk_id for ranked in rankings for chunk_id, _ in ranked}


def _best(vector: Similar, count: int) -> list[int]:
    """Ids of the best chunks by each model."""
    return [chunk_id for ranked in vector.values() for chunk_id, _ in ranked[:count]]


def _to_compare(request: SearchRequest, vector: Similar, keyword: KeywordMatches) -> list[int]:
    """Chunk ids whose similarity is needed, and not among the candidates of the vectors."""
    if not request.vectors:
        return []
    similar = {chunk_id for ranked in vector.values() for chunk_id, _ in ranked}
    asked = {chunk_id for chunk_id, _ in keyword.ranked} if request.compared else set()
    return [chunk_id for chunk_id in sorted(asked | keyword.definitions) if chunk_id not in similar]


def _unit(stored: HalfVector) -> npt.NDArray[np.float32]:
    vector = stored.to_numpy().astype(np.float32)
    unit: npt.NDArray[np.float32] = vector / np.linalg.norm(vector)
    return unit
