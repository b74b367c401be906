"""Export of a generation as Parquet: one file of documents, one of chunks with their vectors.

The files are written into a directory beside the final one, which is renamed at the end. So an
export that is killed leaves nothing that looks complete.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.errors import ConfigurationError, UsageError
from store.export.snapshot import BATCH_ROWS, ExportSnapshot

if TYPE_CHECKING:
    import pyarrow

__all__ = ["CHUNKS", "DOCUMENTS", "FORMAT", "METADATA_KEY", "Exported", "arrow", "export_parquet"]

DOCUMENTS, CHUNKS = "documents.parquet", "chunks.parquet"
FORMAT = 1
METADATA_KEY = b"headrace"
"""Key of the metadata of each file: a JSON object that describes the generation."""


@dataclass(frozen=True, slots=True)
class Exported:
    """Numbers of exported rows. ``vectors``: chunks that have one."""

    project: str
    generation: int
    documents: int
    chunks: int
    vectors: int

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def arrow() -> Any:
    """The package pyarrow, with its module ``parquet``.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        import pyarrow  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            "an export needs the package pyarrow", "pip install 'headrace[export]'"
        ) from None
    return pyarrow


async def export_parquet(
    snapshot: ExportSnapshot, project: str, directory: Path, *, is_private: bool
) -> Exported:
    """Write the rows of a snapshot into a new directory; return their numbers.

    ``is_private``: the snapshot has private documents too. The files' metadata then says so, and
    only the user of this process may open the directory.

    Raises:
        ConfigurationError: pyarrow is not installed.
        UsageError: the directory exists, or cannot be written to.
        Unavailable: Postgres cannot be reached; the directory does not exist then.
    """
    description = _description(snapshot, project, is_private=is_private)
    with _draft(directory, mode=0o700 if is_private else 0o755) as draft:
        documents = _File(draft / DOCUMENTS, _document_schema(), description)
        await documents.write(snapshot.documents())
        chunks = _File(draft / CHUNKS, _chunk_schema(), description)
        await chunks.write(_with_vectors(snapshot.chunks()))
    return Exported(
        project, snapshot.generation.id, documents.rows, chunks.rows, chunks.counted["vector"]
    )


def _description(
    snapshot: ExportSnapshot, project: str, *, is_private: bool
) -> Mapping[str, object]:
    generation = snapshot.generation
    recipe = generation.recipe
    return {
        "format": FORMAT,
        "project": project,
        "generation": generation.id,
        "state": generation.state,
        "model": recipe.model,
        "models": dict(recipe.models),
        "chunking": recipe.chunking,
        "strategies": dict(recipe.strategies),
        "tokens": recipe.tokens,
        "context": recipe.context,
        "private_documents": is_private,
        "exported_at": datetime.now(UTC).isoformat(),
    }


@contextmanager
def _draft(directory: Path, mode: int) -> Iterator[Path]:
    """Directory that takes the place of ``directory`` at the end, or is removed after an error."""
    if directory.exists():
        raise UsageError(f"{directory} exists already", "name a new directory")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    except OSError as error:
        raise UsageError(f"{directory} cannot be written: {error.strerror}") from error
    try:
        yield draft
        draft.chmod(_masked(draft, mode))
        _sync(draft)
        draft.rename(directory)
        _sync(directory.parent)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise UsageError(f"{directory} cannot be written: {error.strerror}") from error
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _masked(directory: Path, mode: int) -> int:
    """Mode that a new directory gets by the umask of the process, which can't be read safely."""
    new = directory / ".mode"
    new.mkdir(mode)
    masked = stat.S_IMODE(new.stat().st_mode)
    new.rmdir()
    return masked


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _File:
    """A Parquet file with one row group for each batch of rows."""

    def __init__(
        self, path: Path, schema: pyarrow.Schema, description: Mapping[str, object]
    ) -> None:
        metadata = {METADATA_KEY: json.dumps(description).encode()}
        self._path = path
        self._schema = schema.with_metadata(metadata)
        self.rows = 0
        self.counted: dict[str, int] = {"vector": 0}

    async def write(self, batches: AsyncIterator[Sequence[Mapping[str, Any]]]) -> None:
        """Write all batches, and sync the file. Memory holds one batch at a time."""
        pyarrow = arrow()
        with pyarrow.parquet.ParquetWriter(self._path, self._schema, compression="zstd") as writer:
            async for rows in batches:
                await asyncio.to_thread(self._write_rows, writer, rows)
        await asyncio.to_thread(_sync, self._path)

    def _write_rows(self, writer: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        batch = arrow().RecordBatch.from_pylist(list(rows), schema=self._schema)
        writer.write_batch(batch, row_group_size=BATCH_ROWS)
        self.rows += len(rows)
        if "vector" in self._schema.names:
            column = batch.column("vector")
            self.counted["vector"] += len(column) - column.null_count


async def _with_vectors(
    batches: AsyncIterator[list[dict[str, Any]]],
) -> AsyncIterator[list[dict[str, Any]]]:
    """The same rows, each with its ``vector`` as 32-bit numbers, which have the exact values."""
    async for rows in batches:
        for row in rows:
            embedding = row.pop("embedding")
            row["vector"] = None if embedding is None else embedding.to_numpy().astype("float32")
        yield rows


def _shared_fields() -> list[pyarrow.Field]:
    """Columns that both files begin with."""
    types = arrow()
    text = types.string()
    return [
        types.field("id", types.int64(), nullable=False),
        types.field("uri", text, nullable=False),
        types.field("agent", text, nullable=False),
        types.field("kind", text, nullable=False),
        types.field("title", text),
        types.field("collections", types.list_(text), nullable=False),
        types.field("metadata", text, nullable=False),
    ]


def _document_schema() -> pyarrow.Schema:
    types = arrow()
    text = types.string()
    return types.schema(
        [
            *_shared_fields(),
            types.field("media_type", text),
            types.field("commit", text),
            types.field("content_hash", text),
            types.field("permalink_template", text),
            types.field("source", text),
            types.field("position", types.int64(), nullable=False),
            types.field("partition", types.int16(), nullable=False),
            types.field("published_at", types.timestamp("us", tz="UTC"), nullable=False),
        ]
    )


def _chunk_schema() -> pyarrow.Schema:
    types = arrow()
    text = types.string()
    return types.schema(
        [
            *_shared_fields(),
            types.field("ordinal", types.int32(), nullable=False),
            types.field("start_line", types.int32(), nullable=False),
            types.field("end_line", types.int32(), nullable=False),
            types.field("page", types.int32()),
            types.field("symbol", text),
            types.field("heading_path", types.list_(text), nullable=False),
            types.field("locator", text),
            types.field("language", text),
            types.field("is_example", types.bool_(), nullable=False),
            types.field("surroundings", text),
            types.field("context", text),
            types.field("tokens", types.int32(), nullable=False),
            types.field("content_hash", text, nullable=False),
            types.field("content", text, nullable=False),
            types.field("model", text),
            types.field("vector", types.list_(types.float32())),
        ]
    )
