"""Search results of both retrievers, on real Postgres."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import numpy as np
import pytest

from events.models import Filters, Kind
from runtime.errors import ConfigurationError, UsageError
from store.postgres.pool import Database
from store.search.keyword.bm25 import K1, B
from store.search.keyword.tokenizer import terms
from store.search.patterns import Pattern
from store.search.search import Search
from store.types import SearchRequest
from tests.support.databases import Database as Fresh
from tests.support.searching import MODEL, Index, unit_vectors


@pytest.fixture
async def index(database: Fresh) -> AsyncIterator[Index]:
    opened = await Database.open(database.operator_url)
    yield Index.of(opened)
    await opened.close()


def zipf_text(rng: random.Random) -> str:
    words = (
        f"w{chr(97 + int(rng.paretovariate(0.6)) % 26)}{int(rng.paretovariate(0.5)) % 900}"
        for _ in range(rng.randrange(5, 60))
    )
    return " ".join(words)


def bm25(texts: list[str], uris: list[str], query: str) -> dict[str, float]:
    """BM25 in plain floats over contents and the words of uris."""
    counted = [Counter(terms(t) + terms(u)) for t, u in zip(texts, uris, strict=True)]
    mean = sum(c.total() for c in counted) / len(counted)
    scores: dict[str, float] = {}
    for term, repeated in Counter(terms(query)).items():
        n = sum(term in c for c in counted)
        idf = math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
        for text, c in zip(texts, counted, strict=True):
            if c[term]:
                norm = K1 * (1 - B + B * c.total() / mean)
                part = repeated * idf * c[term] * (K1 + 1) / (c[term] + norm)
                scores[text] = scores.get(text, 0.0) + part
    return scores


async def test_keyword_scores_equal_bm25(index: Index) -> None:
    """Scores equal BM25 for chunks of large and small writes."""
    rng = random.Random(4)
    texts = list(dict.fromkeys(zipf_text(rng) for _ in range(700)))
    bulk, single = texts[:600], texts[600:]
    await index.store.apply([index.document("bulk", bulk)])
    for i, text in enumerate(single):
        await index.write(f"single{i}", text)
    uris = ["bulk"] * len(bulk) + [f"single{i}" for i in range(len(single))]
    for query in ("wa1 wb2 wc3", "wb1", "wd4 wd4 wa17 we20"):
        wanted = bm25(texts, uris, query)
        found = (await index.candidates(query, limit=50)).keyword
        contents = await index.texts(found)
        assert [score for _, score in found] == pytest.approx(
            sorted(wanted.values(), reverse=True)[:50], rel=1e-5
        )
        assert [wanted[text] for text in contents] == pytest.approx(
            [score for _, score in found], rel=1e-5
        )


async def test_vectors_rank_by_cosine(index: Index) -> None:
    """Without an index, vector search returns exact cosine similarities, best first."""
    vectors = unit_vectors(1, 200, 16)
    await index.store.apply([index.document("d", [f"chunk {i}" for i in range(200)], vectors)])
    found = await index.candidates(vector=vectors[17], limit=10)
    similarities = vectors @ vectors[17]
    order = np.argsort(-similarities)[:10]
    assert await index.texts(found.vector[MODEL]) == [f"chunk {i}" for i in order]
    assert [s for _, s in found.vector[MODEL]] == pytest.approx(similarities[order], abs=2e-3)


async def test_both_legs_are_timed_and_empty_ones_left_out(index: Index) -> None:
    """A search has timings for each retriever that ran."""
    await index.write("d", "alpha", vectors=unit_vectors(1, 1, 8))
    both = await index.candidates("alpha", unit_vectors(1, 1, 8)[0])
    assert set(both.timings_ms) == {"vector", "keyword"}
    assert len(both.keyword) == len(both.vector[MODEL]) == 1
    assert both.degraded == ()
    assert set((await index.candidates("alpha")).timings_ms) == {"keyword"}


async def test_edited_and_deleted_chunks_never_appear(index: Index) -> None:
    """Edited and deleted chunks are not found by either retriever."""
    vectors = unit_vectors(2, 3, 8)
    await index.write("a", "old walrus", "kept walrus", vectors=vectors[:2])
    await index.write("b", "other walrus", vectors=vectors[2:])
    await index.write("a", "new walrus", "kept walrus", vectors=vectors[:2])
    await index.write("b")
    found = await index.candidates("walrus", vectors[0])
    assert sorted(await index.texts(found.keyword)) == ["kept walrus", "new walrus"]
    assert sorted(await index.texts(found.vector[MODEL])) == ["kept walrus", "new walrus"]


async def test_others_private_documents_never_appear(index: Index) -> None:
    """Private documents of other agents and documents of other projects are not found."""
    vector = unit_vectors(3, 1, 8)
    for project in ("p", "q"):
        await index.write("shared", f"{project} shared", vectors=vector, project=project)
        for agent in ("ann", "bob"):
            text = f"{project} {agent} shared"
            await index.write("mine", text, vectors=vector, project=project, agent=agent)
    cases: list[tuple[str | None, set[str]]]
    cases = [("ann", {"p shared", "p ann shared"}), (None, {"p shared"})]
    for asker, wanted in cases:
        found = await index.candidates("shared", vector[0], agent=asker)
        assert set(await index.texts(found.keyword, agent=asker)) == wanted
        assert set(await index.texts(found.vector[MODEL], agent=asker)) == wanted
    everything = await index.candidates("shared", project="q", agent="bob")
    ids = [chunk_id for chunk_id, _ in everything.keyword]
    assert await index.search.rows(await index.live("p"), "bob", ids) == {}
    assert len(await index.search.rows(await index.live("q"), "ann", ids)) == 1


async def test_an_overlay_takes_the_place_of_what_it_differs_from(index: Index) -> None:
    """A search in an overlay has one version of each document; no other has those of it."""
    vector = unit_vectors(3, 1, 8)
    tree, hers = "a" * 32, "b" * 32
    for agent, uris in {
        None: ("kept", "edited", "deleted"),
        "ann": ("edited", "own"),
        f"/{tree}": ("edited", "new"),
        f"ann/{hers}": ("own",),
    }.items():
        for uri in uris:
            text = f"{uri} walrus of {agent}"
            await index.write(uri, text, vectors=vector, agent=agent)
    empty = replace(index.document("deleted", (), agent=f"/{tree}"), change="upsert")
    await index.store.apply([empty])
    base = {"kept walrus of None", "edited walrus of None", "deleted walrus of None"}
    of_tree = {"kept walrus of None", f"edited walrus of /{tree}", f"new walrus of /{tree}"}
    of_ann = {"edited walrus of ann", "own walrus of ann"}
    cases = {
        None: base,
        f"/{tree}": of_tree,
        "ann": base | of_ann,
        f"ann/{tree}": of_tree | of_ann,
        f"ann/{hers}": base | {"edited walrus of ann", f"own walrus of ann/{hers}"},
        f"bob/{tree}": of_tree,
        f"bob/{hers}": base,
        f"/{hers}": base,
        f"/{'c' * 32}": base,
    }
    live, every = await index.live("p"), set[int]()
    for asker, wanted in cases.items():
        found = await index.candidates("walrus", vector[0], agent=asker)
        for ranked in (found.keyword, found.vector[MODEL]):
            assert set(await index.texts(ranked, agent=asker)) == wanted, asker
            every |= {chunk_id for chunk_id, _ in ranked}
        assert found.searched_chunks == len(wanted), asker
    for asker, wanted in cases.items():
        rows = await index.search.rows(live, asker, sorted(every))
        assert {row.content for row in rows.values()} == wanted, "of ids from any snapshot"
        lines = await index.search.exact(live, asker, Pattern.parse("walrus"), Filters(), limit=100)
        assert lines.files == len(wanted), asker


FILTERS = [
    (Filters(kinds=(Kind.CODE,)), {"a"}),
    (Filters(kinds=(Kind.CODE, Kind.MARKDOWN)), {"a", "b"}),
    (Filters(collections=("docs",)), {"b", "c"}),
    (Filters(collections=("docs", "none"), kinds=(Kind.TEXT,)), {"c"}),
    (Filters(uri_prefix="src/a_"), {"a"}),
    (Filters(uri_prefix="src/"), {"a", "b"}),
    (Filters(uri_prefix="src/%"), {"b"}),
    (Filters(metadata={"n": 1}), {"a"}),
    (Filters(metadata={"n": 1.0}), {"a"}),
    (Filters(metadata={"n": "1"}), {"b"}),
    (Filters(metadata={"n": True}), {"c"}),
    (Filters(metadata={"n": 1, "team": "x'; drop table chunks; --"}), {"a"}),
    (Filters(metadata={"absent": 1}), set()),
    (Filters(path_globs=("*.py",)), {"a"}),
    (Filters(path_globs=("src/**",)), {"a", "b"}),
    (Filters(path_globs=("/lib/?", "%*")), {"b", "c"}),
    (Filters(path_globs=("!src/%.md", "!lib/")), {"a"}),
    (Filters(path_globs=("{src,lib}/a*", "!*.py")), {"c"}),
    (Filters(languages=("py",)), {"a"}),
    (Filters(languages=("C#", "rust")), set()),
    (Filters(symbols=("ask",)), {"a"}),
    (Filters(symbols=("Client.ask()", "x")), {"a"}),
    (Filters(symbols=("Client", "as", "ASK", "' or true --")), set()),
    (Filters(), {"a", "b", "c"}),
]


async def test_filters_hold_in_both_legs(index: Index) -> None:
    """Each filter selects its documents in both retrievers; text is neither SQL nor a pattern."""
    vector = unit_vectors(5, 1, 8)
    team = "x'; drop table chunks; --"
    await index.write(
        "src/a_1.py",
        "a same",
        vectors=vector,
        kind="code",
        metadata={"n": 1, "team": team},
        symbols=["Client.close, Client.ask"],
    )
    await index.write(
        "src/%.md",
        "b same",
        vectors=vector,
        kind="markdown",
        metadata={"n": "1"},
        collections=("docs", "more"),
    )
    await index.write(
        "lib/a", "c same", vectors=vector, metadata={"n": True}, collections=("docs",)
    )
    for filters, wanted in FILTERS:
        found = await index.candidates("same", vector[0], filters=filters)
        for ranked in (found.keyword, found.vector[MODEL]):
            assert {text[0] for text in await index.texts(ranked)} == wanted, filters


LANGUAGES = [
    ("run.PY", None, "", {"python"}),
    ("bin/run", None, "#!/usr/bin/env -S python3 -u\n", {"python"}),
    ("bin/shell", "text/plain", "#! /bin/sh\n", {"bash"}),
    ("bin/made", "text/x-ruby; charset=utf-8", "#!/bin/sh\n", {"ruby"}),
    ("odd.py", "text/x-rust", "", {"rust"}),
    ("a.h", None, "", {"c", "cpp", "objc"}),
    ("https://example.org/x.rs?raw=1", None, "", {"rust"}),
    ("Dockerfile.dev", None, "", {"dockerfile"}),
    ("makefile", None, "", {"make"}),
]


async def test_languages_are_those_of_media_types_names_and_first_lines(index: Index) -> None:
    """A language is not stored, so each way to detect it has a document here."""
    for uri, media_type, first, _ in LANGUAGES:
        await index.write(uri, f"{first}{uri} same", kind="code", media_type=media_type)
    await index.write("text.py", "text.py same", kind="text")
    for language in set().union(*(languages for *_, languages in LANGUAGES)):
        answer = await index.candidates("same", filters=Filters(languages=(language,)))
        expected = {uri for uri, *_, languages in LANGUAGES if language in languages}
        texts = await index.texts(answer.keyword)
        assert {text.split("\n")[-1].removesuffix(" same") for text in texts} == expected, language
        assert answer.searched_chunks == len(expected)


async def test_symbols_select_chunks_of_a_document(index: Index) -> None:
    """Other chunks of the same document are neither returned nor counted, with a vector or none."""
    vectors = unit_vectors(7, 2, 8)
    symbols = ["Gate.open", "Gate.close", None]
    await index.write("a.py", "one gate", "two gate", vectors=vectors, symbols=symbols, kind="code")
    await index.write("b.py", "three gate", "four gate", symbols=symbols, kind="code")
    for symbol, expected in (("Gate.open", {"one gate", "three gate"}), ("Gate", set())):
        filters = Filters(symbols=(symbol,))
        answer = await index.candidates("gate", vectors[0], filters=filters)
        assert set(await index.texts(answer.keyword)) == expected
        assert answer.searched_chunks == len(expected)
        similar = await index.texts(answer.vector[MODEL])
        assert similar == [text for text in ("one gate",) if text in expected]


LEDGER = {
    "ledger.py": "class Ledger:\n    def post_entry(self, amount):\n        same(amount)\n",
    "ledger.go": "func (l *Ledger) PostEntry(n int) error {\n\treturn same(n)\n}\n",
    "ledger.ts": "class Ledger {\n  async postEntry(amount: number): Promise<void> {\n    same()\n",
    "use.py": "def Post_Entry(ledger):\n    post_entry = same\n    ledger.post_entry(5)\n",
    "use.go": "if post_entry(same) {\n\tPostEntry(n)\n}\nif PostEntry(n) {\n\tn++\n}\n",
    "notes.md": "def post_entry(same):\n",
}
DEFINED = [
    ("post_entry", {"ledger.py"}),
    ("Ledger.post_entry", {"ledger.py"}),
    ("Ledger::post_entry", {"ledger.py"}),
    ("Ledger#post_entry", {"ledger.py"}),
    ("books.Ledger.post_entry", {"ledger.py"}),
    ("Other.post_entry", set()),
    ("POST_ENTRY", set()),
    ("Post_Entry", {"use.py"}),
    ("PostEntry", {"ledger.go"}),
    ("Ledger.postEntry", {"ledger.ts"}),
    ("' or true --", set()),
    ("(", set()),
]


async def test_a_symbol_may_be_defined_within_a_small_class(index: Index) -> None:
    """A chunk that is named after the class passes; one that only mentions the name does not."""
    vectors = unit_vectors(7, 1, 8)
    symbols = {"ledger.py": "books.Ledger", "ledger.go": "Ledger", "use.py": "Post_Entry, other"}
    for uri, text in LEDGER.items():
        kind = "markdown" if uri == "notes.md" else "code"
        named = [symbols.get(uri, "Ledger" if uri == "ledger.ts" else None)]
        await index.write(uri, text, vectors=vectors, kind=kind, symbols=named)
    uris = {text: uri for uri, text in LEDGER.items()}
    for symbol, expected in DEFINED:
        filters = Filters(symbols=(symbol,))
        answer = await index.candidates("same", vectors[0], filters=filters)
        for ranked in (answer.keyword, answer.vector[MODEL]):
            assert {uris[text] for text in await index.texts(ranked)} == expected, symbol
        assert answer.searched_chunks == len(expected)
    both = await index.candidates("same", filters=Filters(symbols=("post_entry", "PostEntry")))
    assert {uris[t] for t in await index.texts(both.keyword)} == {"ledger.py", "ledger.go"}


async def test_a_symbol_in_a_private_or_replaced_document_is_hidden(index: Index) -> None:
    """Definitions of other agents, and those that an overlay replaces, do not pass."""
    filters = Filters(symbols=("post_entry",))
    text, in_overlay = LEDGER["ledger.py"], f"/{'a' * 32}"
    await index.write("ledger.py", text, kind="code", symbols=["Ledger"])
    await index.write("own.py", f"{text}# own", kind="code", symbols=["Ledger"], agent="ada")
    await index.write(
        "ledger.py", "class Ledger: same", kind="code", symbols=["Ledger"], agent=in_overlay
    )
    for agent, expected in ((None, {text}), ("ada", {text, f"{text}# own"}), (in_overlay, set())):
        answer = await index.candidates("same", filters=filters, agent=agent)
        assert {*await index.texts(answer.keyword, agent=agent)} == expected


async def test_a_rare_filter_is_exact(index: Index) -> None:
    """A rare document that passes the filter is found behind a thousand better ones that do not."""
    await index.store.apply([index.document("many", [f"common words {i}" for i in range(1500)])])
    await index.write("rare", "common " + "padding " * 200, kind="code")
    found = await index.candidates("common words", filters=Filters(kinds=(Kind.CODE,)), limit=5)
    assert len(found.keyword) == 1


async def test_misspelt_words_are_corrected(index: Index) -> None:
    """An unknown word is corrected to its nearest word, and the correction is reported."""
    await index.write("a", "the consumer acknowledges every message")
    await index.write("b", "an unrelated sentence about walruses")
    for query in ("acknowleges", "mesage", "messgae", "aknowledgse"):
        found = await index.candidates(query)
        assert await index.texts(found.keyword) == ["the consumer acknowledges every message"]
        assert len(found.corrections) == 1
    assert (await index.candidates("zzzzzzzz")).keyword == []
    assert (await index.candidates("message")).corrections == {}


async def test_a_word_that_lives_no_more_is_no_correction(index: Index) -> None:
    """A word of a deleted chunk leads to no result."""
    await index.write("a", "acknowledge")
    await index.write("a")
    found = await index.candidates("acknowlege")
    assert found.keyword == []


async def test_an_unknown_project_names_the_cure_and_no_other_project(index: Index) -> None:
    """The error for an unknown project names no other project."""
    await index.write("a", "text", project="known-one")
    with pytest.raises(UsageError, match=r"no project 'p'; .*headrace project list") as refused:
        await index.candidates("x")
    assert "known-one" not in str(refused.value)


async def test_a_correction_reveals_no_private_word(index: Index) -> None:
    """Corrections use only words that the asker may read."""
    await index.write("shared", "the consumer acknowledges every message")
    await index.write("private", "massage massage", "massage again", agent="ada")
    await index.write("more", "nothing of zanzibar", agent="ada")
    assert (await index.candidates("messagge")).corrections == {"messagg": "messag"}
    assert (await index.candidates("zanzibarr")).corrections == {}
    assert (await index.candidates("zanzibarr", agent="ada")).corrections != {}


async def test_a_failing_leg_is_named(index: Index, database: Fresh) -> None:
    """A failed retriever is named if the other works; without any, the search fails."""
    await index.write("a", "some words", vectors=unit_vectors(1, 1, 8))
    owner = await asyncpg.connect(database.owner_url)
    await owner.execute("alter table keyword_segments rename to gone")
    found = await index.candidates("words", unit_vectors(1, 1, 8)[0])
    assert found.degraded == ("keyword",)
    assert len(found.vector[MODEL]) == 1
    with pytest.raises(ConfigurationError, match="headrace migrate"):
        await index.candidates("words")
    await owner.close()


async def test_rows_carry_what_a_citation_needs(index: Index) -> None:
    """A row has its document's uri, kind and metadata; unknown ids are absent."""
    await index.write("dir/a.py", "some words", kind="code", metadata={"x": 1})
    ((chunk_id, _),) = (await index.candidates("words")).keyword
    rows = await Search(index.database).rows(await index.live(), None, [chunk_id, 10**9])
    assert list(rows) == [chunk_id]
    row = rows[chunk_id]
    assert (row.uri, row.kind, row.content, row.start_line) == ("dir/a.py", "code", "some words", 1)
    assert row.metadata == {"x": 1}


async def test_candidates_of_the_keyword_retriever_are_compared_on_request(index: Index) -> None:
    """The vector retriever returns the nearest chunk only; the other one is measured."""
    vectors = unit_vectors(1, 2, 8)
    await index.write("near", "first weir", vectors=vectors[:1])
    await index.write("far", "second weir", vectors=vectors[1:])
    await index.write("none", "third weir")
    generation = await index.live()
    request = SearchRequest("p", None, "weir", {MODEL: vectors[0]}, Filters(), 3)
    measured = dict((await index.search.candidates(generation, request)).vector[MODEL])

    narrow = SearchRequest("p", None, "weir", {MODEL: vectors[0]}, Filters(), 1)
    assert (await index.search.candidates(generation, narrow)).compared == {}
    every = replace(request, compared=True)
    assert (await index.search.candidates(generation, every)).compared == {}
    words = [chunk_id for chunk_id, _ in (await index.candidates("second")).keyword]
    other = replace(narrow, text="second", compared=True)
    compared = (await index.search.candidates(generation, other)).compared
    assert compared == {words[0]: pytest.approx(measured[words[0]], abs=1e-6)}
    bare = replace(narrow, text="third", compared=True)
    assert (await index.search.candidates(generation, bare)).compared == {}


async def test_the_best_chunks_of_each_retriever_have_the_beginning_of_their_text(
    index: Index,
) -> None:
    """Also if the best ones by keyword are hidden: here the private ones of another agent."""
    vectors = unit_vectors(3, 9, 8)
    shared = [f"def weir{n}(): weir{' filler' * (n + 4)}" for n in range(9)]
    hidden = [f"def weir{n}(): weir weir weir" for n in range(9)]
    options = {"kind": "code", "symbols": [f"weir{n}" for n in range(9)]}
    await index.write("hidden.py", *hidden, agent="ada", **options)
    await index.write("shared.py", *shared, vectors=vectors, **options)
    request = SearchRequest("p", None, "weir", {MODEL: vectors[8]}, Filters(), 9)
    for text, by_model in (("weir", request.vectors), ("weir", {}), (None, request.vectors)):
        asked = replace(request, text=text, vectors=by_model, described=2)
        found = await index.search.candidates(await index.live(), asked)
        best = [*(pair for hits in found.vector.values() for pair in hits[:2]), *found.keyword[:2]]
        beginnings = {at: found.places[at].beginning for at, _ in best}
        assert len(beginnings) >= 2
        assert all(beginnings.values()), (text, beginnings)
        assert [*beginnings.values()] == await index.texts([(at, 0.0) for at in beginnings])
        none = await index.search.candidates(await index.live(), replace(asked, described=0))
        assert not any(place.beginning for place in none.places.values())


async def test_without_filters_few_texts_are_read_beyond_the_best(index: Index) -> None:
    """With filters more are, since many of the best may be hidden."""
    texts = [f"def weir{n}(): weir{' filler' * n}" for n in range(30)]
    symbols = [f"weir{n}" for n in range(30)]
    await index.write("weir.py", *texts, kind="code", symbols=symbols)
    request = SearchRequest("p", None, "weir", {}, Filters(), 30, described=10)
    for filters, count in ((Filters(), 12), (Filters(kinds=(Kind.CODE,)), 20)):
        asked = replace(request, filters=filters)
        found = await index.search.candidates(await index.live(), asked)
        assert sum(bool(place.beginning) for place in found.places.values()) == count


async def test_a_search_counts_the_chunks_in_its_scope(index: Index) -> None:
    """Filters and private documents of other agents count as in the search."""
    await index.write("shared", "one", "two", "three")
    await index.write("private", "four", "five", agent="ada")
    await index.write("code", "six", kind="code")
    only_code = Filters(kinds=(Kind.CODE,))
    assert (await index.candidates("one")).searched_chunks == 4
    assert (await index.candidates("one", agent="ada")).searched_chunks == 6
    assert (await index.candidates("one", filters=only_code)).searched_chunks == 1
    assert (await index.candidates("one", filters=Filters(uri_prefix="x"))).searched_chunks == 0


async def test_definitions_are_found_beyond_the_candidates(index: Index) -> None:
    """A name brings its visible definitions, whatever their rank, with what ranks them."""
    mentions = [f"call Rows() with {n} rows: Rows, Rows" for n in range(40)]
    definition = "class Rows:\n    " + " ".join(f"filler{n}" for n in range(300))
    await index.write("mentions.md", *mentions)
    await index.write("store/rows.py", "import os", definition, kind="code")
    await index.write("private.py", "def rows(): pass", kind="code", agent="other")
    await index.write("gone.py", "class Rows: pass", kind="code")
    await index.write("gone.py")
    candidates = await index.candidates("Rows", limit=10, defined=("Rows",))
    defining = [chunk for chunk in candidates.named.values() if chunk.content is not None]
    assert [(chunk.uri, chunk.kind, chunk.start_line) for chunk in defining] == [
        ("store/rows.py", "code", 2)
    ]
    assert defining[0].content == definition
    assert candidates.named.keys() > {chunk_id for chunk_id, _ in candidates.keyword}
    plain = await index.candidates("Rows", limit=10)
    assert plain.keyword == candidates.keyword
    assert plain.named == {}
    only_code = await index.candidates(
        "Rows", limit=10, defined=("rows",), agent="other", filters=Filters(uri_prefix="private")
    )
    assert [chunk.uri for chunk in only_code.named.values()] == ["private.py"]


async def test_definitions_are_compared_without_words(index: Index) -> None:
    """A search by vector gets definitions with their similarity, also beyond its candidates."""
    vectors = unit_vectors(3, 12, 16)
    texts = [f"def name_{n}(): pass" for n in range(12)]
    await index.write("a.py", *texts, kind="code", vectors=vectors)
    cosines = vectors @ vectors[0]
    last = int(np.argmin(cosines))
    candidates = await index.candidates(vector=vectors[0], limit=3, defined=(f"name_{last}",))
    [similarity] = candidates.compared.values()
    assert similarity == pytest.approx(float(cosines[last]), abs=2e-3)
    assert candidates.keyword == []
