"""Write transaction on a real database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, permutations
from typing import Any

import asyncpg
import numpy as np
import pytest

from events.models import Origin, Problem
from events.names import LogPosition
from runtime.errors import (
    ConfigurationError,
    PreconditionFailed,
    Unavailable,
    UnsupportedContent,
)
from store.postgres.pool import Database
from store.sources import RegisteredSource
from store.store import Store
from store.types import DocumentWrite
from tests.support.waiting import within
from tests.support.writes import (
    MODEL,
    RECIPE,
    chunk_write,
    contents_of,
    document_write,
    vector_of,
)


async def texts(worker: Database, agent: str | None = None) -> dict[str, list[str]]:
    """Chunks by uri in project alpha as an agent sees them, with its name before private uris."""
    live = await Store(worker, RECIPE).generation("alpha")
    found = await contents_of(worker, live, agent)
    return {f"{owner}:{uri}" if owner else uri: text for (owner, uri), text in found.items()}


async def rows(worker: Database, sql: str) -> list[Any]:
    live = await Store(worker, RECIPE).generation("alpha")
    async with worker.scope(live.project_id, "*", live.id) as connection:
        return list(await connection.fetch(sql))


async def test_a_document_is_stored_with_its_chunks_vectors_and_collections(
    store: Store, worker: Database
) -> None:
    """A change writes chunks, vectors, collections and keyword segments."""
    write = document_write("a.md", 10, ["one", "two"], collections=("docs", "all"), title="A")
    (applied,) = await store.apply([write])
    assert (applied.outcome, applied.chunks_added) == ("indexed", 2)
    stored = await rows(worker, "select embedding from embeddings order by chunk_id")
    assert [one["embedding"].to_list() for one in stored] == [
        vector_of("one").tolist(),
        vector_of("two").tolist(),
    ]
    names = await rows(
        worker,
        "select name from collections join document_collections dc on dc.collection_id = id "
        "order by name",
    )
    assert [one["name"] for one in names] == ["all", "docs"]
    assert await rows(worker, "select from keyword_segments")


CHANGES = (
    document_write("a", 10, ["first"]),
    document_write("a", 20, change="delete"),
    document_write("b", 30, ["moved"], change="rename", old_uri="a"),
    document_write("a", 40, ["again", "more"]),
    document_write("c", 50, ["moved"], change="rename", old_uri="b"),
)
FOLDED = {"a": ["again", "more"], "c": ["moved"]}


async def in_every_order(
    store: Store, worker: Database, changes: Sequence[DocumentWrite], together: bool
) -> list[tuple[Sequence[DocumentWrite], Mapping[str, list[str]]]]:
    """Each order of the changes, with the texts by uri after they were applied in it.

    Each order has documents of its own. They share batches, which takes a tenth of the time:
    ``together`` in one batch, or one change of each order after the other.
    """
    orders = list(permutations(changes))
    moved = [[_moved(write, number) for write in order] for number, order in enumerate(orders)]
    for batch in [list(chain(*moved))] if together else zip(*moved, strict=True):
        await store.apply(list(batch))
    texts: list[dict[str, list[str]]] = [{} for _ in orders]
    stored = await contents_of(worker, await store.generation(changes[0].project))
    for (_, uri), content in stored.items():
        number, _, name = uri.partition("/")
        texts[int(number)][name] = content
    return list(zip(orders, texts, strict=True))


def _moved(write: DocumentWrite, number: int) -> DocumentWrite:
    """Change of a document in a folder of its own, at a later position and revision."""
    later, origin = number * 100, write.origin
    return replace(
        write,
        uri=f"{number}/{write.uri}",
        old_uri=write.old_uri and f"{number}/{write.old_uri}",
        position=write.position + later,
        event_id=f"{write.event_id}-{number}",
        origin=origin and Origin(source=origin.source, revision=origin.revision + later),
    )


@pytest.mark.parametrize("together", [False, True])
async def test_every_order_of_events_ends_like_the_log(
    store: Store, worker: Database, together: bool
) -> None:
    """Changes in any order, alone or in a batch, give the fold of the log."""
    for order, texts in await in_every_order(store, worker, CHANGES, together):
        assert texts == FOLDED, order


DOCS, CODE = "d" * 32, "c" * 32


def of_source(
    uri: str, position: int, source: str, revision: int, *args: Any, **fields: Any
) -> DocumentWrite:
    return document_write(
        uri, position, *args, origin=Origin(source=source, revision=revision), **fields
    )


REVISED = (
    of_source("a", 70, DOCS, 10, ["stalled"]),
    of_source("a", 60, DOCS, 50, ["new"]),
    document_write("a", 30, ["an agent's, between"]),
    of_source("b", 71, DOCS, 10, ["stalled too"]),
    of_source("c", 61, DOCS, 50, ["moved"], change="rename", old_uri="b"),
)
REVISED_FOLD = {"a": ["new"], "c": ["moved"]}


@pytest.mark.parametrize("together", [False, True])
async def test_within_a_source_the_newer_revision_wins_in_every_order(
    store: Store, worker: Database, together: bool
) -> None:
    """A newer revision of a source wins in any order; an agent's change ranks by its position."""
    for order, texts in await in_every_order(store, worker, REVISED, together):
        assert texts == REVISED_FOLD, order


async def test_a_tombstone_keeps_its_source_and_revision(store: Store, worker: Database) -> None:
    """A tombstone keeps source and revision, so a stale change can't restore the document."""
    await store.apply([of_source("a", 20, DOCS, 15, change="delete")])
    (late,) = await store.apply([of_source("a", 30, DOCS, 12, ["stalled"])])
    assert late.outcome == "superseded"
    (stored,) = await rows(worker, "select source_id, source_revision, deleted from documents")
    assert tuple(stored) == (DOCS, 15, True)
    (agents,) = await store.apply([document_write("a", 40, ["an agent's"])])
    assert agents.outcome == "indexed"
    assert await texts(worker) == {"a": ["an agent's"]}
    (stored,) = await rows(worker, "select source_id, source_revision from documents")
    assert tuple(stored) == (None, None)


async def registered_sources(store: Store) -> tuple[RegisteredSource, RegisteredSource]:
    """Two sources of project alpha."""
    docs = await store.sources.register("alpha", "docs", "docs", "directory", "/docs")
    return docs, await store.sources.register("alpha", "code", "code", "git", "/code")


@pytest.mark.parametrize("together", [False, True])
async def test_a_source_never_touches_the_documents_of_another(
    store: Store, worker: Database, together: bool
) -> None:
    """A source's change of another source's document is rejected, unless that is deleted."""
    docs, code = await registered_sources(store)
    writes = [
        of_source("a", 10, docs.id, 1, ["of docs"]),
        of_source("z", 11, docs.id, 1, ["gone"]),
        of_source("b", 12, code.id, 2, ["of code"]),
        of_source("z", 13, docs.id, 3, change="delete"),
        of_source("a", 20, code.id, 4, ["taken over"]),
        of_source("a", 21, code.id, 4, change="delete"),
        of_source("a", 22, code.id, 4, ["moved"], change="rename", old_uri="b"),
        of_source("y", 23, code.id, 4, ["moved"], change="rename", old_uri="a"),
        of_source("z", 24, code.id, 4, ["of code now"]),
    ]
    batches = [writes] if together else [[write] for write in writes]
    applied = [one for batch in batches for one in await store.apply(batch)]
    assert [one.outcome for one in applied[-5:]] == [*["rejected"] * 4, "indexed"]
    assert str(applied[4].conflict) == (
        "a is a document of source docs, so source code may not change it; "
        "sync one of them with --prefix"
    )
    assert await texts(worker) == {"a": ["of docs"], "b": ["of code"], "z": ["of code now"]}
    ledger = await rows(worker, "select position from ledger where position between 20 and 23")
    assert ledger == []


async def test_documents_of_a_source_that_is_gone_can_be_taken_over(
    store: Store, worker: Database
) -> None:
    """Another source can change the documents of a deleted one."""
    docs, code = await registered_sources(store)
    await store.apply([of_source("a", 10, docs.id, 1, ["of docs"])])
    live = await store.generation("alpha")
    async with worker.scope(live.project_id) as connection:
        await connection.execute("delete from sources where id = $1", docs.id)
    await store.apply([of_source("a", 20, code.id, 2, ["of code"])])
    assert await texts(worker) == {"a": ["of code"]}


async def test_a_document_that_another_source_creates_meanwhile_is_seen(
    store: Store, worker: Database
) -> None:
    """Only one of two sources that create a document at once succeeds."""
    docs, code = await registered_sources(store)
    for number in range(10):
        uri = f"{number}"
        first, second = await asyncio.gather(
            store.apply([of_source(uri, 10 + number, docs.id, 1, ["docs"])]),
            store.apply([of_source(uri, 50 + number, code.id, 2, ["code"])]),
        )
        outcomes = {one.outcome for one in (*first, *second)}
        assert outcomes in ({"indexed", "rejected"}, {"indexed", "superseded"})


async def test_late_changes_are_superseded_and_repeated_ones_duplicates(store: Store) -> None:
    """A late change is superseded, and a repeated one is a duplicate."""
    deleted = document_write("a", 20, change="delete")
    late = document_write("a", 10, ["old"])
    outcomes = [one.outcome for one in await store.apply([deleted])]
    outcomes += [one.outcome for one in await store.apply([late])]
    outcomes += [one.outcome for one in await store.apply([late, deleted, deleted])]
    assert outcomes == ["indexed", "superseded", "duplicate", "duplicate", "duplicate"]


async def test_in_one_batch_the_newest_change_of_a_document_wins(
    store: Store, worker: Database
) -> None:
    """The newest change in a batch wins, and outcomes have the order of the changes."""
    writes = [
        document_write("a", 30, ["new"]),
        document_write("a", 10, ["old"]),
        document_write("a", 30, ["new"]),
    ]
    applied = await store.apply(writes)
    assert [one.outcome for one in applied] == ["indexed", "superseded", "duplicate"]
    assert await texts(worker) == {"a": ["new"]}


async def test_an_edit_inserts_only_the_chunks_that_changed(store: Store, worker: Database) -> None:
    """An edit keeps rows and vectors of unchanged chunks and updates their lines."""
    await store.apply([document_write("a", 10, ["one", "two", "three"])])
    ids = {r["content"]: r["id"] for r in await rows(worker, "select id, content from chunks")}
    (applied,) = await store.apply([document_write("a", 20, ["zero", "one", "three"])])
    assert (applied.chunks_kept, applied.chunks_added, applied.chunks_removed) == (2, 1, 1)
    after = await rows(
        worker,
        "select c.id, content, start_line from chunks c join embeddings e on e.chunk_id = c.id",
    )
    places = {row["content"]: (row["id"], row["start_line"]) for row in after}
    assert places["one"] == (ids["one"], 2)
    assert places["three"] == (ids["three"], 3)
    assert set(places) == {"zero", "one", "three"}
    assert places["zero"][0] not in ids.values()


async def test_repeated_texts_in_a_document_are_paired_one_to_one(
    store: Store, worker: Database
) -> None:
    """Equal chunks of a document are separate rows."""
    await store.apply([document_write("a", 10, ["same", "same"])])
    (applied,) = await store.apply([document_write("a", 20, ["same"])])
    assert (applied.chunks_kept, applied.chunks_removed) == (1, 1)
    assert await texts(worker) == {"a": ["same"]}


async def test_a_new_title_indexes_every_chunk_again(store: Store, worker: Database) -> None:
    """A new title replaces every chunk, because title words are part of its terms."""
    await store.apply([document_write("a", 10, ["one"], title="Old")])
    (applied,) = await store.apply([document_write("a", 20, ["one"], title="New")])
    assert (applied.chunks_kept, applied.chunks_added, applied.chunks_removed) == (0, 1, 1)


async def test_private_documents_of_two_agents_live_beside_the_shared_one(
    store: Store, worker: Database
) -> None:
    """An agent sees the shared document and its own private one, and deletes only its own."""
    await store.apply(
        [
            document_write("a", 10, ["shared"]),
            document_write("a", 11, ["ann's"], agent="ann"),
            document_write("a", 12, ["bob's"], agent="bob"),
        ]
    )
    assert await texts(worker, "ann") == {"a": ["shared"], "ann:a": ["ann's"]}
    assert await texts(worker) == {"a": ["shared"]}
    await store.apply([document_write("a", 13, agent="ann", change="delete")])
    assert await texts(worker, "ann") == {"a": ["shared"]}
    assert await texts(worker, "bob") == {"a": ["shared"], "bob:a": ["bob's"]}


async def test_concurrent_batches_of_the_same_documents_end_like_the_log(
    store: Store, worker: Database
) -> None:
    """Concurrent batches in different orders neither deadlock nor overwrite newer content."""

    def batch(number: int) -> list[DocumentWrite]:
        uris = [f"{uri:02}" for uri in range(20)]
        uris = uris[::-1] if number % 2 else uris
        return [
            document_write(uri, 100 * number + place, [f"{number}", "common"])
            for place, uri in enumerate(uris)
        ]

    await asyncio.gather(*(store.apply(batch(number)) for number in range(1, 9)))
    assert await texts(worker) == {f"{uri:02}": ["8", "common"] for uri in range(20)}
    assert len(await rows(worker, "select from ledger")) == 160


async def of_projects(worker: Database, *projects: str) -> dict[str, dict[tuple[str, str], Any]]:
    """Chunks by agent and uri of the live generation of each project."""
    store = Store(worker, RECIPE)
    return {
        project: await contents_of(worker, await store.generation(project)) for project in projects
    }


async def test_changes_of_several_projects_are_applied_together(
    store: Store, worker: Database
) -> None:
    """A transaction for several projects writes to each what ``apply`` would."""
    await store.apply([document_write("a", 10, ["old"], project="beta")])
    writes = [
        document_write("a", 20, ["new", "kept"], project="beta"),
        document_write("a", 21, ["first"]),
        document_write("a", 22, ["own"], project="delta", agent="ann"),
        document_write("b", 23, ["laid over"], project="gamma", agent="ann/s1"),
        document_write("a", 24, project="epsilon", agent="bob", change="delete"),
    ]
    results = await store.apply_together(writes)
    assert results is not None
    assert [one.event_id for one in results] == [write.event_id for write in writes]
    assert {one.outcome for one in results} == {"indexed"}
    assert [one.created for one in results] == [False, True, True, True, False]
    assert await of_projects(worker, "alpha", "beta", "gamma", "delta") == {
        "alpha": {("", "a"): ["first"]},
        "beta": {("", "a"): ["new", "kept"]},
        "gamma": {("ann/s1", "b"): ["laid over"]},
        "delta": {("ann", "a"): ["own"]},
    }
    again = await store.apply_together(writes)
    assert again is not None
    assert {one.outcome for one in again} == {"duplicate"}


@pytest.mark.parametrize(
    "last",
    [
        document_write("a", 5, ["late"], project="beta"),
        document_write("b", 21, ["for another generation"], project="beta", generation_id=10_000),
        document_write("b", 21, ["zero byte: \0"], project="beta"),
    ],
)
async def test_a_failure_in_one_project_leaves_nothing_of_the_others(
    store: Store, worker: Database, last: DocumentWrite
) -> None:
    """If changes of one project fail, none is applied, so that each can be applied alone."""
    await store.apply([document_write("a", 10, ["stored"], project="beta")])
    before = await of_projects(worker, "alpha", "beta")
    assert await store.apply_together([document_write("a", 20, ["text"]), last]) is None
    assert await of_projects(worker, "alpha", "beta") == before
    assert not await rows(worker, "select from ledger where position = 20")


async def test_a_project_whose_document_is_locked_does_not_hold_up_the_others(
    store: Store, worker: Database
) -> None:
    """Their transaction ends long before a statement would, so that they can be applied alone."""
    await store.apply([document_write("a", 10, ["stored"], project="beta")])
    beta = await store.generation("beta")
    writes = [document_write("a", 20, ["text"], project=project) for project in ("alpha", "beta")]
    async with worker.scope(beta.project_id, None, beta.id) as other:
        await other.execute("select from documents where uri = 'a' for update")
        async with within(8):
            assert await store.apply_together(writes) is None
    results = await store.apply_together(writes)
    assert results is not None


async def test_concurrent_writes_to_several_projects_end_like_the_log(
    store: Store, worker: Database
) -> None:
    """Transactions for the same projects neither deadlock nor overwrite newer content."""
    projects = ["alpha", "beta", "gamma", "delta"]
    await store.apply([document_write("a", 1, ["0"], project=project) for project in projects])

    async def write(number: int) -> None:
        some = projects[::-1] if number % 2 else projects
        writes = [
            document_write("a", 100 * number + place, [f"{number}"], project=project)
            for place, project in enumerate(some)
        ]
        if await store.apply_together(writes) is None:  # they are late
            await store.apply(writes)

    await asyncio.gather(*map(write, range(1, 9)))
    assert await of_projects(worker, *projects) == {
        project: {("", "a"): ["8"]} for project in projects
    }


async def test_a_commit_whose_reply_is_lost_is_no_failure_before_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the connection is lost at the commit, changes may be applied: they are not repeated."""

    async def lose(transaction: Any) -> None:
        raise ConnectionResetError("the reply is lost")

    writes = [document_write("a", 20, ["text"], project=project) for project in ("alpha", "beta")]
    await store.live_generations(["alpha", "beta"])
    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.transaction.Transaction, "_Transaction__commit", lose)
        with pytest.raises(Unavailable):
            await store.apply_together(writes)


async def test_the_same_change_at_once_in_two_workers_is_applied_once(store: Store) -> None:
    """A change that several workers apply at once is indexed once."""
    write = document_write("a", 10, ["one"])
    results = await asyncio.gather(*(store.apply([write]) for _ in range(6)))
    assert sorted(one.outcome for (one,) in results) == ["duplicate"] * 5 + ["indexed"]


async def test_vectors_outlive_their_chunks(store: Store) -> None:
    """A vector is found by its hash after its chunk was deleted, in its project and model only."""
    await store.apply([document_write("a", 10, ["one"])])
    await store.apply([document_write("a", 20, change="delete")])
    known, unknown = (chunk_write(0, text).content_hash for text in ("one", "other"))
    found = await store.known_vectors("alpha", MODEL, [known, unknown])
    assert list(found) == [known]
    assert np.array_equal(found[known], vector_of("one"))
    assert await store.known_vectors("beta", MODEL, [known]) == {}
    assert await store.known_vectors("alpha", "other/model", [known]) == {}


async def test_a_chunk_without_a_vector_is_stored(store: Store, worker: Database) -> None:
    """A chunk of a kind without a model is stored without a vector."""
    chunk = chunk_write(0, "one", model="", vector=None)
    await store.apply([document_write("a", 10, chunks=(chunk,))])
    assert await texts(worker) == {"a": ["one"]}
    assert not await rows(worker, "select from embeddings")


async def test_a_model_keeps_its_width(store: Store, worker: Database) -> None:
    """A vector of another width is refused, and nothing of its batch is written."""
    await store.apply([document_write("a", 10, ["one"])])
    wide = chunk_write(0, "two", vector=vector_of("two", dimensions=9))
    with pytest.raises(ConfigurationError, match="returned 9 dimensions"):
        await store.apply([document_write("b", 20, chunks=(wide,))])
    assert await texts(worker) == {"a": ["one"]}


async def test_a_rejected_change_is_not_handled_until_it_is_redriven(store: Store) -> None:
    """A rejected change does not count as handled, and can be applied later."""
    problem = Problem(type="LimitExceeded", detail="too long")
    write = document_write("a", 10, ["one"])
    await store.record_rejected(
        project="alpha", partition=0, position=10, event_id=write.event_id, problem=problem
    )
    assert await store.handled([("alpha", LogPosition(10, 0))]) == set()
    assert [one.outcome for one in await store.apply([write])] == ["indexed"]
    assert await store.handled(
        [("alpha", LogPosition(10, 0)), ("alpha", LogPosition(11, 0)), ("beta", LogPosition(10, 0))]
    ) == {("alpha", LogPosition(10, 0))}


async def test_content_by_reference_is_kept_by_its_hash(store: Store) -> None:
    """Content is stored once by its hash, in its own project only."""
    reference = await store.put("alpha", "text " * 100)
    assert await store.put("alpha", "text " * 100) == reference
    assert await store.get_content("alpha", reference.sha256) == b"text " * 100
    with pytest.raises(UnsupportedContent, match="publish it again"):
        await store.get_content("beta", reference.sha256)


async def test_statistics_count_private_documents_too(store: Store) -> None:
    """Statistics count documents, tombstones and chunks of all agents."""
    await store.apply([document_write("a", 10, ["one", "two"])])
    await store.apply([document_write("b", 11, ["three"], agent="ann")])
    await store.apply([document_write("a", 12, change="delete")])
    (alpha,) = await store.statistics()
    assert (alpha.documents, alpha.tombstones, alpha.chunks) == (1, 1, 1)
    assert alpha.outcomes == {"indexed": 3}
    assert alpha.freshness_p50_ms is not None
    assert await store.statistics("unknown") == []


A, B, C = ("a" * 64, "b" * 64, "c" * 64)


async def test_a_change_that_expects_another_content_changes_nothing(
    store: Store, worker: Database
) -> None:
    """It is rejected in the ledger with its reason, so that a replay leaves it out."""
    await store.apply([document_write("a.md", 1, ["one"], content_hash=A)])
    wrong = document_write("a.md", 2, ["two"], content_hash=B, expected_hash=C)

    (applied,) = await store.apply([wrong])

    assert applied.outcome == "rejected"
    assert isinstance(applied.conflict, PreconditionFailed)
    assert A in applied.conflict.message
    assert C in applied.conflict.message
    assert await texts(worker) == {"a.md": ["one"]}
    (entry,) = await rows(worker, "select outcome, detail::text from ledger where position = 2")
    assert entry["outcome"] == "rejected"
    assert json.loads(entry["detail"])["type"] == "PreconditionFailed"
    (again,) = await store.apply([wrong])
    assert again.outcome == "rejected"


async def test_a_change_that_expects_the_stored_content_is_applied(
    store: Store, worker: Database
) -> None:
    await store.apply([document_write("a.md", 1, ["one"], content_hash=A)])
    right = document_write("a.md", 2, ["two"], content_hash=B, expected_hash=A)
    assert [applied.outcome for applied in await store.apply([right])] == ["indexed"]
    assert [applied.outcome for applied in await store.apply([right])] == ["duplicate"]
    assert await texts(worker) == {"a.md": ["two"]}


@pytest.mark.parametrize("first_batch", [0, 1, 2, 3])
async def test_of_two_edits_of_one_version_the_first_wins(
    store: Store, worker: Database, first_batch: int
) -> None:
    """In one batch or in several."""
    writes = [
        document_write("a.md", 1, ["one"], content_hash=A),
        document_write("a.md", 2, ["two"], content_hash=B, expected_hash=A),
        document_write("a.md", 3, ["three"], content_hash=C, expected_hash=A),
    ]
    results = [
        *(await store.apply(writes[:first_batch]) if first_batch else []),
        *(await store.apply(writes[first_batch:]) if first_batch < 3 else []),
    ]
    assert results[2].outcome == "rejected"
    assert await texts(worker) == {"a.md": ["two"]}


@pytest.mark.parametrize("change", ["upsert", "delete"])
async def test_a_document_that_does_not_exist_has_no_expected_content(
    store: Store, worker: Database, change: str
) -> None:
    """Neither an unknown document nor a deleted one."""
    await store.apply([document_write("gone.md", 1, ["one"], content_hash=A)])
    await store.apply([document_write("gone.md", 2, change="delete")])
    chunks = {"chunks": ()} if change == "delete" else {}
    for number, uri in enumerate(("new.md", "gone.md"), start=3):
        write = document_write(uri, number, ["x"], change=change, expected_hash=A, **chunks)
        (applied,) = await store.apply([write])
        assert isinstance(applied.conflict, PreconditionFailed)
        assert "does not exist" in applied.conflict.message
    assert await texts(worker) == {}


async def test_a_rename_expects_the_content_of_the_former_uri(
    store: Store, worker: Database
) -> None:
    await store.apply([document_write("old.md", 1, ["one"], content_hash=A)])
    rename = {"change": "rename", "old_uri": "old.md", "content_hash": B}
    results = [
        *await store.apply([document_write("new.md", 2, ["x"], expected_hash=B, **rename)]),
        *await store.apply([document_write("new.md", 3, ["two"], expected_hash=A, **rename)]),
    ]
    assert [applied.outcome for applied in results] == ["rejected", "indexed"]
    assert await texts(worker) == {"new.md": ["two"]}


async def test_an_older_change_is_superseded_whatever_it_expects(store: Store) -> None:
    await store.apply([document_write("a.md", 5, ["five"], content_hash=A)])
    (applied,) = await store.apply([document_write("a.md", 4, ["four"], expected_hash=C)])
    assert applied.outcome == "superseded"


async def test_a_document_is_created_if_it_did_not_exist_or_was_deleted(store: Store) -> None:
    writes = [
        document_write("a.md", 1, ["one"]),
        document_write("a.md", 2, ["two"]),
        document_write("a.md", 3, change="delete"),
        document_write("a.md", 4, ["four"]),
        document_write("b.md", 5, ["four"], change="rename", old_uri="a.md"),
        document_write("a.md", 1, ["one"]),
    ]
    created = [(await store.apply([write]))[0].created for write in writes]
    assert created == [True, False, False, True, True, False]
