"""Loading of an exported generation into Qdrant, by its official client.

Each chunk is a point under its own id, with its vector under the name of its model
(``vector_name``). Loading it
again changes nothing, so an interrupted load is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.errors import ConfigurationError, Unavailable, UsageError
from store.export.parquet import CHUNKS, FORMAT, METADATA_KEY, arrow

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

__all__ = ["connect", "describe", "load", "vector_name"]

_BATCH_POINTS = 256
_NOT_PAYLOAD = frozenset({"id", "vector"})
_FILTERED = ("uri", "agent", "kind", "collections", "symbol", "language", "model")
"""Fields of the payload that get an index, so that filters need not read all points."""


def connect(url: str, api_key: str = "") -> QdrantClient:
    """Client of a server, of a directory (local mode), or of memory (``:memory:``).

    Raises:
        ConfigurationError: the client is not installed.
    """
    try:
        from qdrant_client import QdrantClient  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            "loading needs the package qdrant-client", "pip install 'headrace[export]'"
        ) from None
    if url == ":memory:":
        return QdrantClient(":memory:")
    if "://" in url:
        return QdrantClient(url=url, api_key=api_key or None)
    return QdrantClient(path=url)


def describe(directory: Path) -> dict[str, Any]:
    """Read the description of an export.

    Raises:
        ConfigurationError: pyarrow is not installed.
        UsageError: the directory has no export that this version can read.
    """
    pyarrow = arrow()
    try:
        metadata = pyarrow.parquet.read_schema(directory / CHUNKS).metadata or {}
        description: dict[str, Any] = json.loads(metadata[METADATA_KEY])
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"{directory} is not an export: {error}", "`headrace export PROJECT DIR` makes one"
        ) from error
    if description.get("format") != FORMAT:
        raise UsageError(
            f"{directory} has format {description.get('format')}, and this version reads {FORMAT}",
            "load it with the version that exported it",
        )
    return description


def vector_name(model: str) -> str:
    """Name in Qdrant of the vectors of a model; Qdrant refuses slashes."""
    return model.replace("/", "_")


def load(client: QdrantClient, directory: Path, collection: str) -> int:
    """Load the chunks of an export into a collection, and create it; return their number. Blocks.

    Raises:
        UsageError: the directory has no export, or the collection has other vectors or points.
        Unavailable: the server cannot be reached, or refuses; run it again.
    """
    describe(directory)
    widths = _widths(directory)
    try:
        _prepare(client, collection, widths)
        chunks = sum(
            _upsert(client, collection, rows)
            for rows in _batches(directory, None, size=_BATCH_POINTS)
        )
        points = client.count(collection, exact=True).count
    except (UsageError, ConfigurationError):
        raise
    except Exception as error:
        raise Unavailable(
            f"Qdrant did not take the points: {str(error)[:500]}", "run the command again"
        ) from error
    if points != chunks:
        raise UsageError(
            f"the collection {collection} has {points:,} points, and the export {chunks:,} chunks",
            "load it into another collection",
        )
    return chunks


def _widths(directory: Path) -> dict[str, int]:
    """Width of the vectors by their name in Qdrant."""
    widths: dict[str, int] = {}
    for rows in _batches(directory, ["model", "vector"], size=_BATCH_POINTS):
        for row in rows:
            if row["vector"] is not None:
                widths.setdefault(vector_name(row["model"]), len(row["vector"]))
    return widths


def _batches(
    directory: Path, columns: Sequence[str] | None, *, size: int
) -> Iterator[list[dict[str, Any]]]:
    with arrow().parquet.ParquetFile(directory / CHUNKS) as file:
        for batch in file.iter_batches(batch_size=size, columns=columns):
            yield batch.to_pylist()


def _prepare(client: QdrantClient, collection: str, widths: Mapping[str, int]) -> None:
    """Create the collection, or make sure that it has vectors of the same names and widths."""
    from qdrant_client import models  # noqa: PLC0415

    if not client.collection_exists(collection):
        client.create_collection(
            collection,
            vectors_config={
                # all vectors have unit length, and are stored as they are
                name: models.VectorParams(size=width, distance=models.Distance.DOT)
                for name, width in widths.items()
            },
        )
        if not _is_local(client):
            for field in _FILTERED:
                client.create_payload_index(
                    collection, field, field_schema=models.PayloadSchemaType.KEYWORD
                )
        return
    present = client.get_collection(collection).config.params.vectors
    present_widths = (
        {name: params.size for name, params in present.items()} if isinstance(present, dict) else {}
    )
    if present_widths != dict(widths):
        raise UsageError(
            f"the collection {collection} has other vectors than the export",
            "load it into another collection",
        )


def _is_local(client: QdrantClient) -> bool:
    from qdrant_client.local.qdrant_local import QdrantLocal  # noqa: PLC0415

    return isinstance(client._client, QdrantLocal)


def _upsert(client: QdrantClient, collection: str, rows: Sequence[Mapping[str, Any]]) -> int:
    from qdrant_client import models  # noqa: PLC0415

    points = [
        models.PointStruct(
            id=row["id"],
            vector={} if row["vector"] is None else {vector_name(row["model"]): row["vector"]},
            payload=_payload(row),
        )
        for row in rows
    ]
    client.upsert(collection, points, wait=True)
    return len(points)


def _payload(row: Mapping[str, Any]) -> dict[str, Any]:
    """Everything but id and vector. Metadata and places are objects, so that filters reach them."""
    payload = {name: value for name, value in row.items() if name not in _NOT_PAYLOAD}
    payload["metadata"] = json.loads(row["metadata"])
    payload["locator"] = None if row["locator"] is None else json.loads(row["locator"])
    return payload
