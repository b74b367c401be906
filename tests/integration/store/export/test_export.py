"""Export of a generation as Parquet, and its loading into Qdrant in its local mode.

Tests import the client of Qdrant themselves: it takes seconds, and each test process of a run
collects every module.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from runtime.errors import NotFound, Unavailable, UsageError
from store.export import parquet, qdrant
from store.export.parquet import CHUNKS, DOCUMENTS, Exported, export_parquet
from store.export.snapshot import ExportSnapshot
from store.postgres.pool import EVERY_AGENT, Database
from store.store import Store
from tests.support.writes import MODEL, add_generation, chunk_write, document_write, vector_of

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

NAME = qdrant.vector_name(MODEL)
VECTORS = """
    select c.id, e.embedding from chunks c
    left join embeddings e on e.generation_id = c.generation_id and e.chunk_id = c.id
    order by c.id
"""


@pytest.fixture
async def filled(store: Store) -> Store:
    """Shared and private documents, with metadata, collections, a tombstone and a pending chunk."""
    await store.apply(
        [
            document_write("a.md", 10, ["one", "two"], collections=("x", "y"), kind="markdown"),
            document_write("b.py", 11, ["three"], metadata={"team": "core", "year": "2026"}),
            document_write("empty.md", 12, []),
            document_write("gone.md", 13, ["five"]),
            document_write(
                "c.md",
                15,
                chunks=(
                    chunk_write(0, "six", vector=None, symbol="C.six", heading_path=("A", "B")),
                    chunk_write(1, "seven", page=3, language="python", is_example=True),
                ),
                collections=("y",),
            ),
        ]
    )
    await store.apply([document_write("gone.md", 20, change="delete")])
    await store.apply([document_write("secret.md", 21, ["four"], agent="ada")])
    return store


async def export(
    worker: Database, store: Store, directory: Path, agent: str = "", generation: int | None = None
) -> Exported:
    live = await store.generation("alpha")
    async with ExportSnapshot.open(worker, live.project_id, generation, agent) as snapshot:
        return await export_parquet(snapshot, "alpha", directory, is_private=bool(agent))


async def stored(worker: Database, store: Store, query: str, agent: str = "") -> list[Any]:
    live = await store.generation("alpha")
    async with worker.scope(live.project_id, agent, live.id) as connection:
        return list(await connection.fetch(query))


def read(directory: Path, name: str) -> list[dict[str, Any]]:
    return list(pq.read_table(directory / name).to_pylist())


def left_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


@pytest.mark.parametrize("agent", ["", EVERY_AGENT])
async def test_the_files_have_exactly_the_rows_of_the_index(
    filled: Store, worker: Database, tmp_path: Path, agent: str
) -> None:
    """Rows, vectors and attributes are those of the index; private ones only if asked for."""
    directory = tmp_path / "out"
    exported = await export(worker, filled, directory, agent)
    documents, chunks = read(directory, DOCUMENTS), read(directory, CHUNKS)
    extra = int(bool(agent))
    assert exported == Exported("alpha", exported.generation, 4 + extra, 5 + extra, 4 + extra)
    assert {row["uri"] for row in documents} == {
        *("a.md", "b.py", "c.md", "empty.md"),
        *(["secret.md"] if agent else []),
    }
    rows = await stored(worker, filled, VECTORS, agent)
    assert [row["id"] for row in chunks] == [row["id"] for row in rows]
    for chunk, row in zip(chunks, rows, strict=True):
        if row["embedding"] is None:
            assert chunk["vector"] is None
        else:
            assert np.array_equal(np.float16(chunk["vector"]), row["embedding"].to_numpy())
    columns = (
        "id, ordinal, start_line, end_line, page, symbol, heading_path, language, tokens, content"
    )
    compared = await stored(worker, filled, f"select {columns} from chunks order by id", agent)  # noqa: S608
    assert [{name: chunk[name] for name in columns.split(", ")} for chunk in chunks] == [
        dict(row) for row in compared
    ]
    [first, *_] = chunks
    assert (first["uri"], first["kind"], first["collections"]) == ("a.md", "markdown", ["x", "y"])
    assert json.loads(next(c["metadata"] for c in chunks if c["uri"] == "b.py"))["team"] == "core"
    metadata = json.loads(pq.read_schema(directory / CHUNKS).metadata[b"headrace"])
    assert (metadata["project"], metadata["model"]) == ("alpha", MODEL)
    assert metadata["private_documents"] is bool(agent)
    assert directory.stat().st_mode & 0o777 == (0o700 if agent else 0o755)
    assert metadata["generation"] == exported.generation


async def test_an_export_is_as_private_as_the_user_asks_of_new_files(
    filled: Store, worker: Database, tmp_path: Path
) -> None:
    """The umask applies to the directory, too."""
    former = os.umask(0o077)
    try:
        await export(worker, filled, tmp_path / "out", "")
    finally:
        os.umask(former)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700


async def test_an_export_reads_one_snapshot_in_batches(
    filled: Store, worker: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that are applied during an export are in neither file; rows come in row groups."""
    monkeypatch.setattr("store.export.snapshot.BATCH_ROWS", 2)
    batches = ExportSnapshot.documents

    async def changed(self: ExportSnapshot) -> AsyncIterator[list[dict[str, Any]]]:
        await filled.apply([document_write("late.md", 30, ["late"])])
        async for rows in batches(self):
            yield rows

    monkeypatch.setattr(ExportSnapshot, "documents", changed)
    await export(worker, filled, tmp_path / "out")
    for name in (DOCUMENTS, CHUNKS):
        assert "late.md" not in {row["uri"] for row in read(tmp_path / "out", name)}
    assert pq.ParquetFile(tmp_path / "out" / CHUNKS).num_row_groups == 3


async def test_a_failed_export_leaves_no_directory(
    filled: Store, worker: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the middle leaves nothing, and the command can be repeated."""
    chunks = ExportSnapshot.chunks

    async def broken(self: ExportSnapshot) -> AsyncIterator[list[dict[str, Any]]]:
        async for rows in chunks(self):
            yield rows
            raise Unavailable("the connection is lost")

    with monkeypatch.context() as patched:
        patched.setattr(ExportSnapshot, "chunks", broken)
        with pytest.raises(Unavailable):
            await export(worker, filled, tmp_path / "out")
    assert not left_in(tmp_path)
    await export(worker, filled, tmp_path / "out")
    with pytest.raises(UsageError, match="exists already"):
        await export(worker, filled, tmp_path / "out")
    with pytest.raises(
        UsageError, match=r"out/documents\.parquet/in cannot be written: [A-Za-z ]+$"
    ):
        await export(worker, filled, tmp_path / "out" / "documents.parquet" / "in")


async def test_only_complete_generations_are_exported(
    filled: Store, worker: Database, tmp_path: Path
) -> None:
    """A generation of another project, and one that is being built, are refused."""
    building = await add_generation(worker, filled, "alpha")
    with pytest.raises(UsageError, match="building"):
        await export(worker, filled, tmp_path / "out", generation=building.id)
    other = await filled.generation("beta")
    with pytest.raises(NotFound):
        await export(worker, filled, tmp_path / "out", generation=other.id)
    assert not left_in(tmp_path)


async def test_qdrant_has_the_ids_vectors_and_payload_of_the_export(
    filled: Store, worker: Database, tmp_path: Path
) -> None:
    """A load that is repeated changes nothing, and filters and rankings are those of the index."""
    directory = tmp_path / "out"
    await export(worker, filled, directory)
    chunks = read(directory, CHUNKS)
    client = qdrant.connect(str(tmp_path / "qdrant"))
    for _ in range(2):
        assert qdrant.load(client, directory, "alpha") == len(chunks)
    points, _ = client.scroll("alpha", limit=100, with_vectors=True)
    by_id = {point.id: point for point in points}
    assert sorted(by_id) == [chunk["id"] for chunk in chunks]
    for chunk in chunks:
        point = by_id[chunk["id"]]
        assert point.payload is not None
        assert isinstance(point.vector, dict)
        vector = point.vector.get(NAME)
        assert (vector is None) == (chunk["vector"] is None)
        if vector is not None:
            assert np.array_equal(np.asarray(vector), np.asarray(chunk["vector"]))
        expected = {name: chunk[name] for name in chunk if name not in {"id", "vector"}}
        expected["metadata"] = json.loads(chunk["metadata"])
        assert point.payload == expected
    assert _ids(client, "collections", "y") == {
        chunk["id"] for chunk in chunks if "y" in chunk["collections"]
    }
    assert _ids(client, "metadata.team", "core") == {
        chunk["id"] for chunk in chunks if chunk["uri"] == "b.py"
    }
    question = vector_of("two").astype("float32")
    ranked = client.query_points("alpha", query=question.tolist(), using=NAME, limit=100).points
    expected_order = sorted(
        (chunk for chunk in chunks if chunk["vector"] is not None),
        key=lambda chunk: -float(np.float32(chunk["vector"]) @ question),
    )
    assert [point.id for point in ranked] == [chunk["id"] for chunk in expected_order]
    client.close()


def _ids(client: QdrantClient, field: str, value: str) -> set[Any]:
    from qdrant_client import models

    condition = models.FieldCondition(key=field, match=models.MatchValue(value=value))
    points, _ = client.scroll("alpha", models.Filter(must=[condition]), limit=100)
    return {point.id for point in points}


async def test_a_collection_of_other_data_is_refused(
    filled: Store, worker: Database, tmp_path: Path
) -> None:
    """Other vectors, other points and a directory without an export are told apart."""
    from qdrant_client import models

    directory = tmp_path / "out"
    await export(worker, filled, directory)
    client = qdrant.connect(":memory:")
    size = models.VectorParams(size=3, distance=models.Distance.DOT)
    client.create_collection("other", vectors_config={NAME: size})
    with pytest.raises(UsageError, match="other vectors"):
        qdrant.load(client, directory, "other")
    qdrant.load(client, directory, "alpha")
    client.upsert("alpha", [models.PointStruct(id=10**9, vector={}, payload={})])
    with pytest.raises(UsageError, match="6 points"):
        qdrant.load(client, directory, "alpha")
    with pytest.raises(UsageError, match="not an export"):
        qdrant.load(client, tmp_path, "alpha")
    client.close()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(Exception, match="pyarrow") as refused:
        parquet.arrow()
    assert "headrace[export]" in getattr(refused.value, "remedy", "")
