"""CocoIndex: its example of an index of code, with the HNSW index in place of IVFFlat.

The source is https://github.com/cocoindex-io/cocoindex, ``examples/code_embedding``, and the page
https://cocoindex.io/docs/connectors/postgres. Files are walked, cut by syntax, and embedded by a
memoised function; its engine keeps the table equal to what the flow declares. It searches by
vector only.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path, PurePath
from threading import Thread
from typing import Annotated, Any, TypeVar

import asyncpg
import cocoindex as coco
import numpy as np
import numpy.typing as npt
from cocoindex.connectors import localfs, postgres
from cocoindex.ops.text import RecursiveSplitter, detect_code_language
from cocoindex.resources import schema
from cocoindex.resources.chunk import Chunk
from cocoindex.resources.file import FileLike, PatternFilePathMatcher
from cocoindex.resources.id import IdGenerator
from pgvector.asyncpg import register_vector

from bench.peers.protocol import DIMENSIONS, Embedder, Gate, Peer, serve

Vector = npt.NDArray[np.float32]
T = TypeVar("T")

_TABLE = "chunks"
_CHARACTERS = 1000
_LEAST_CHARACTERS = 300
_OVERLAP = 300
_BATCH = 64
_NEAREST = """
    SELECT filename, code, embedding <=> $1 AS distance, start_line, end_line
    FROM chunks
    ORDER BY distance
    LIMIT $2
"""
_EMBEDDERS: dict[str, Embedder] = {}
"""Embedder by model: the engine compares and stores the name only."""

_splitter = RecursiveSplitter()


class _Model(schema.VectorSchemaProvider):
    """The common embedder, as the class of sentence transformers in CocoIndex is made."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getstate__(self) -> dict[str, str]:
        return {"name": self._name}

    def __setstate__(self, state: dict[str, str]) -> None:
        self._name = state["name"]

    @coco.fn.as_async(batching=True, runner=coco.GPU, max_batch_size=_BATCH)
    def _embed(self, texts: list[str]) -> list[Vector]:
        return list(_EMBEDDERS[self._name].documents(texts))

    @coco.fn(memo=True, version=1, logic_tracking="self")
    async def embed(self, text: str) -> Vector:
        """Embed one text of a document; calls at the same time become one batch."""
        vector: Vector = await self._embed(text)
        return vector

    async def __coco_vector_schema__(self) -> schema.VectorSchema:
        return schema.VectorSchema(dtype=np.dtype(np.float32), size=DIMENSIONS)


_DATABASE = coco.ContextKey[asyncpg.Pool]("database")
_MODEL = coco.ContextKey[_Model]("model", detect_change=True)


@dataclass
class _Row:
    id: int
    filename: str
    code: str
    embedding: Annotated[Vector, _MODEL]
    start_line: int
    end_line: int


@coco.fn
async def _declare_chunk(
    chunk: Chunk, filename: PurePath, ids: IdGenerator, table: postgres.TableTarget[_Row]
) -> None:
    table.declare_row(
        row=_Row(
            id=await ids.next_id(chunk.text),
            filename=filename.as_posix(),
            code=chunk.text,
            embedding=await coco.use_context(_MODEL).embed(chunk.text),
            start_line=chunk.start.line,
            end_line=chunk.end.line,
        )
    )


@coco.fn(memo=True)
async def _declare_file(file: FileLike, table: postgres.TableTarget[_Row]) -> None:
    path = file.file_path.path
    chunks = _splitter.split(
        await file.read_text(),
        chunk_size=_CHARACTERS,
        min_chunk_size=_LEAST_CHARACTERS,
        chunk_overlap=_OVERLAP,
        language=detect_code_language(filename=path.name),
    )
    await coco.map(_declare_chunk, chunks, path, IdGenerator(), table)


@coco.fn
async def _declare_index(directory: Path) -> None:
    table = await postgres.mount_table_target(
        _DATABASE,
        table_name=_TABLE,
        table_schema=await postgres.TableSchema.from_class(_Row, primary_key=["id"]),
        pg_schema_name="public",
    )
    table.declare_vector_index(column="embedding", method="hnsw")
    every_file = PatternFilePathMatcher(included_patterns=["**/*"], excluded_patterns=["**/.*"])
    files = localfs.walk_dir(directory, recursive=True, path_matcher=every_file)
    await coco.mount_each(_declare_file, files.items(), table)


class CocoIndex(Peer):
    """Synchronises by an update of an app whose engine keeps its state in ``home``."""

    modes = ("vector",)
    packages = ("cocoindex",)
    chunks = "SELECT substr(filename, strpos(filename, '/') + 1), code FROM chunks"

    def connect(self, home: Path, url: str | None) -> str:
        assert url is not None
        self._home, self._url = home, url
        _EMBEDDERS[self.embedder.model] = self.embedder
        self._loop = asyncio.new_event_loop()
        Thread(target=self._loop.run_forever, daemon=True).start()
        self._apps: dict[str, Any] = {}
        self._pool: asyncpg.Pool | None = None
        return url

    def sync(self, directory: str) -> None:
        self._app(directory).update_blocking()

    def build(self) -> None:
        """Do nothing: the flow declares its index."""

    def find(self, text: str, mode: str, limit: int, model: str) -> list[str]:
        del mode
        vector = Embedder(model, self.channel).question(text)
        return [_uri(row["filename"]) for row in self._run(self._nearest(vector, limit))]

    def race(self, directory: str, uri: str, old: str, new: str) -> None:
        """Update twice at the same time, since the engine reads files only."""
        path = Path(directory, uri)
        path.write_text(old, encoding="utf-8")
        gate = self.embedder.gate = Gate()

        def quick() -> None:
            self.embedder.gate = None
            path.write_text(new, encoding="utf-8")
            self.sync(directory)

        gate.overtake(lambda: self.sync(directory), quick)

    def remodel(self, directory: str) -> None:
        """Update: the engine notices the other model, and embeds all again in place."""
        self.sync(directory)

    async def _nearest(self, vector: Vector, limit: int) -> list[Any]:
        if self._pool is None:
            self._pool = await asyncpg.create_pool(self._url, init=register_vector, min_size=1)
        async with self._pool.acquire() as connection:
            rows: list[Any] = await connection.fetch(_NEAREST, vector, limit)
            return rows

    def _run(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _app(self, directory: str) -> Any:
        """App of a directory; the first use of it opens its environment."""
        if directory not in self._apps:

            @coco.lifespan
            async def lifespan(builder: coco.EnvironmentBuilder) -> AsyncIterator[None]:
                builder.settings.db_path = self._home / "cocoindex.db"
                async with asyncpg.create_pool(self._url) as pool:
                    builder.provide(_DATABASE, pool)
                    builder.provide(_MODEL, _Model(self.embedder.model))
                    yield

            self._apps[directory] = coco.App(
                coco.AppConfig(name="bench"),
                _declare_index,
                directory=Path(os.path.relpath(directory)),
            )
        return self._apps[directory]


def _uri(filename: str) -> str:
    """Path below the directory, whose name the walk puts before it."""
    return filename.partition("/")[2]


if __name__ == "__main__":
    serve(CocoIndex)
