"""Code examples beside the text: neither a search for text nor its scores depend on them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from events.models import Filters, Kind
from store.postgres.pool import Database
from store.search.keyword.purge import purge_words
from store.search.keyword.segment_merge import list_sizes
from store.search.maintenance import Maintenance
from store.search.search import Search
from store.types import Candidates, ChunkWrite, DocumentWrite
from tests.support.databases import Database as Fresh
from tests.support.searching import MODEL, Index, Vectors, unit_vectors

DIMENSIONS = 16
EXAMPLES = Filters(kinds=(Kind.CODE_EXAMPLE,))
TEXTS = [f"weir number{n} of the mill race, gate {n % 7} open" for n in range(60)]
VECTORS = unit_vectors(3, 2 * len(TEXTS), DIMENSIONS)


@pytest.fixture
async def index(database: Fresh) -> AsyncIterator[Index]:
    opened = await Database.open(database.operator_url)
    yield Index.of(opened)
    await opened.close()


def example(ordinal: int, code: str, vector: Vectors | None) -> ChunkWrite:
    return ChunkWrite(
        ordinal=ordinal,
        start_line=ordinal,
        end_line=ordinal,
        content=code,
        content_hash=hashlib.sha256(f"example {code}".encode()).digest(),
        tokens=len(code) // 4,
        model="" if vector is None else MODEL,
        vector=None if vector is None else vector.astype(np.float16),
        is_example=True,
        language="python",
        surroundings="Around a sluice",
    )


def documents(
    index: Index, project: str, *, examples: bool, vectors: Vectors | None = VECTORS
) -> list[DocumentWrite]:
    """One document for each text; with ``examples``, each has a code example too."""
    writes = []
    for number, text in enumerate(TEXTS):
        own = None if vectors is None else vectors[number : number + 1]
        kind = "html" if number % 2 else "markdown"
        write = index.document(f"d{number}", [text], own, project=project, kind=kind)
        if examples:
            vector = None if vectors is None else vectors[len(TEXTS) + number]
            chunk = example(1, f"gate.open({number})  # weir number{number}", vector)
            write = replace(write, chunks=(*write.chunks, chunk))
        writes.append(write)
    return writes


def scores(ranked: Sequence[tuple[int, float]]) -> list[float]:
    return [score for _, score in ranked]


async def both(index: Index, project: str, *, filters: Filters | None = None) -> Candidates:
    """Candidates of both retrievers."""
    return await index.candidates(
        "weir number7 gate", VECTORS[3], project=project, filters=filters, limit=40
    )


async def test_scores_of_text_are_those_without_examples(index: Index) -> None:
    """Texts have the same BM25 scores, similarities and counts with and without examples."""
    await index.store.apply(documents(index, "plain", examples=False))
    await index.store.apply(documents(index, "coded", examples=True))
    for _ in range(2):  # the second time, the segments are merged
        plain, coded = await both(index, "plain"), await both(index, "coded")
        assert scores(coded.keyword) == scores(plain.keyword)
        assert scores(coded.vector[MODEL]) == scores(plain.vector[MODEL])
        assert await index.texts(coded.keyword, project="coded") == await index.texts(
            plain.keyword, project="plain"
        )
        assert coded.term_weights == plain.term_weights
        assert coded.searched_chunks == plain.searched_chunks == len(TEXTS)
        for project in ("plain", "coded"):
            await Maintenance(index.database).tidy_keywords(await index.live(project))


async def test_a_search_for_examples_returns_nothing_else(index: Index) -> None:
    """The filter ``code_example`` searches examples alone; other kinds are those of documents."""
    await index.store.apply(documents(index, "coded", examples=True))
    candidates = await both(index, "coded", filters=EXAMPLES)
    assert candidates.searched_chunks == len(TEXTS)
    assert len(candidates.keyword) == len(candidates.vector[MODEL]) == 40
    texts = await index.texts([*candidates.keyword, *candidates.vector[MODEL]], project="coded")
    assert all(text.startswith("gate.open(") for text in texts)
    assert texts[0] == "gate.open(7)  # weir number7"
    of_pages = Filters(kinds=(Kind.CODE_EXAMPLE, Kind.HTML))
    candidates = await both(index, "coded", filters=of_pages)
    assert candidates.searched_chunks == len(candidates.keyword) == len(TEXTS) // 2


async def test_an_example_is_found_by_the_text_around_it(index: Index) -> None:
    """Words around an example find the example, with its kind and language, and no text."""
    await index.store.apply(documents(index, "p", examples=True)[:1])
    assert (await index.candidates("sluice")).keyword == []
    candidates = await index.candidates("sluice", filters=EXAMPLES)
    rows = await index.search.rows(await index.live(), None, [i for i, _ in candidates.keyword])
    [row] = rows.values()
    assert (row.kind, row.language, row.surroundings) == (
        "code_example",
        "python",
        "Around a sluice",
    )


async def test_a_misspelt_word_is_corrected_among_examples(index: Index) -> None:
    """Words are corrected to those of visible examples, although examples add none."""
    await index.store.apply(documents(index, "p", examples=True))
    candidates = await index.candidates("weirr", filters=EXAMPLES)
    assert candidates.corrections == {"weirr": "weir"}
    assert candidates.keyword


async def test_a_vector_index_serves_both(index: Index, database: Fresh) -> None:
    """An HNSW index serves searches of text and of examples, each with its own chunks only."""
    count = 1_500
    vectors = unit_vectors(5, 2 * count, DIMENSIONS)
    chunks = [f"text {number}" for number in range(count)]
    write = index.document("d", chunks, vectors[:count])
    rest = tuple(example(count + n, f"code({n})", vectors[count + n]) for n in range(count))
    await index.store.apply([replace(write, chunks=(*write.chunks, *rest))])
    await Maintenance(index.database, database.owner_url, exact_chunks=1_000).run_once()
    search = replace(index, search=Search(index.database))
    for filters, offset, word in ((Filters(), 0, "text"), (EXAMPLES, count, "code")):
        wanted = vectors[offset : offset + count] @ vectors[offset + 9]
        candidates = await search.candidates(vector=vectors[offset + 9], filters=filters, limit=50)
        texts = await search.texts(candidates.vector[MODEL])
        assert len(texts) == 50
        assert all(text.startswith(word) for text in texts)
        assert candidates.vector[MODEL][0][1] == pytest.approx(float(wanted.max()), abs=0.01)


async def test_private_examples_are_for_their_agent(index: Index) -> None:
    """Row-level security hides a private document's examples from others."""
    write = index.document("secret", ["the key turns"], agent="ada")
    await index.store.apply([replace(write, chunks=(*write.chunks, example(1, "turn()", None)))])
    assert (await index.candidates("turn", filters=EXAMPLES)).keyword == []
    own = await index.candidates("turn", filters=EXAMPLES, agent="ada")
    assert await index.texts(own.keyword, agent="ada") == ["turn()"]


async def test_segments_are_merged_apart(index: Index) -> None:
    """Merged segments hold either text or examples."""
    for write in documents(index, "p", examples=True):
        await index.store.apply([write])
    live = await index.live()
    await Maintenance(index.database).tidy_keywords(live)
    async with index.database.scope(live.project_id, "*", live.id) as connection:
        sizes = await list_sizes(connection, live.id)
    by_part = {
        part: sum(size.chunks for size in sizes if size.is_example is part)
        for part in (False, True)
    }
    assert by_part == {False: len(TEXTS), True: len(TEXTS)}
    assert len(sizes) < len(TEXTS)


async def test_a_purge_keeps_words_of_text_and_examples(index: Index) -> None:
    """A purge of words rewrites the segments of both parts, and both are still searchable."""
    writes = documents(index, "p", examples=True)
    await index.store.apply(writes)
    await index.store.apply([replace(writes[7], event_id="again", position=900, chunks=())])
    live = await index.live()
    async with index.database.scope(live.project_id, "*", live.id) as connection:
        purged = await purge_words(connection, live.id)
    assert purged.segments == 2
    for filters in (Filters(), EXAMPLES):
        [best, *_] = await index.texts(
            (await index.candidates("weir number8", filters=filters)).keyword
        )
        assert "number8" in best
        rest = (await index.candidates("weir", filters=filters, limit=100)).keyword
        assert len(rest) == len(TEXTS) - 1


async def test_pending_examples_lower_the_coverage_of_their_own_search(index: Index) -> None:
    """An example without a vector counts for a search for examples, and not for one of text."""
    write = index.document("d", TEXTS[:3], VECTORS[:3])
    waiting = example(3, "later()", VECTORS[0])._replace(vector=None)
    chunks = (*write.chunks, example(4, "now()", VECTORS[1]), waiting)
    await index.store.apply([replace(write, chunks=chunks)])
    text = await index.candidates("weir", VECTORS[0])
    examples = await index.candidates("later", VECTORS[0], filters=EXAMPLES)
    assert (text.coverage, examples.coverage) == (1.0, 0.5)
    assert text.degraded == ()
