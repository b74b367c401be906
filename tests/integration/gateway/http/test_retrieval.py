"""The retrieval API: four routes under /rag, as the product requirements describe them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.auth.callers import Right
from runtime.embedded import EmbeddedPostgres
from tests.support.gateways import Gateway, deployment

GUIDE = "# Weirs\n\nA weir raises the water of the mill.\n"
SOURCE = {"source_type": "markdown", "source_path": "docs/weirs.md", "content": GUIDE}


def write_files(home: Path) -> Path:
    """Directory that the gateway may read, with a file and a link that leads out of it."""
    directory = home / "files"
    directory.mkdir()
    (directory / "mill.md").write_text("# Mill\n\nThe mill grinds corn.\n")
    (home / "secret.md").write_text("secret")
    (directory / "link.md").symlink_to(home / "secret.md")
    return directory


@pytest.fixture(scope="module")
async def deployed(
    redis_server: str, postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    """A gateway beside a worker, that reads files."""
    home = tmp_path_factory.mktemp("deployed")
    files = {"files": str(write_files(home))}
    async with deployment(redis_server, postgres_server, home, gateway=files) as running:
        yield running


@pytest.fixture
async def client(served: Gateway) -> AsyncIterator[httpx2.AsyncClient]:
    """A client whose paths begin at the gateway's root."""
    headers = {"Authorization": f"Bearer {await served.key()}"}
    async with httpx2.AsyncClient(base_url=served.url, headers=headers, timeout=60) as client:
        yield client


async def indexed(client: httpx2.AsyncClient, **fields: Any) -> dict[str, Any]:
    """Index a document, and return the response."""
    response = await client.post("/rag/index", json={**SOURCE, **fields})
    assert response.status_code == 201, response.text
    body: dict[str, Any] = response.json()
    return body


async def test_a_document_is_indexed_updated_or_unchanged(client: httpx2.AsyncClient) -> None:
    first = await indexed(client, metadata={"team": "river"})
    assert first.keys() == {
        *("source_id", "chunks_created", "tokens_processed", "duration_ms", "status")
    }
    assert (first["status"], first["chunks_created"]) == ("indexed", 1)
    assert first["tokens_processed"] > 0
    assert first["duration_ms"] > 0
    again = await indexed(client, metadata={"team": "river"})
    assert (again["status"], again["chunks_created"]) == ("unchanged", 0)
    changed = await indexed(client, content=f"{GUIDE}\nIt is old.\n", metadata={"team": "river"})
    assert changed["status"] == "updated"
    assert {again["source_id"], changed["source_id"]} == {first["source_id"]}


async def test_chunks_are_retrieved_by_query_threshold_and_filters(
    client: httpx2.AsyncClient,
) -> None:
    source = await indexed(client, metadata={"team": "river"})
    await indexed(client, source_type="openapi", source_path="api.yaml", content=_OPENAPI)
    response = await client.post("/rag/retrieve", json={"query": "weir water mill"})
    assert response.status_code == 200
    body = response.json()
    assert body.keys() == {
        *("results", "query_embedding_time_ms", "search_time_ms", "total_chunks_searched")
    }
    assert body["total_chunks_searched"] >= 2
    assert body["search_time_ms"] > 0
    (result,) = (row for row in body["results"] if row["source_path"] == "docs/weirs.md")
    assert result.keys() == {
        *("chunk_id", "source_id", "source_path", "source_type", "content"),
        *("relevance_score", "metadata"),
    }
    assert (result["source_id"], result["source_path"], result["source_type"]) == (
        source["source_id"],
        "docs/weirs.md",
        "markdown",
    )
    assert "weir raises the water" in result["content"]
    assert result["metadata"]["team"] == "river"

    async def paths(**fields: Any) -> set[str]:
        sent = {"query": "weir water mill", "top_k": 50, **fields}
        found = (await client.post("/rag/retrieve", json=sent)).json()["results"]
        return {result["source_path"] for result in found}

    assert await paths() == {"docs/weirs.md", "api.yaml"}
    assert await paths(similarity_threshold=1.0) == set()
    assert await paths(filters={"source_type": "openapi"}) == {"api.yaml"}
    assert await paths(filters={"source_path": "docs/"}) == {"docs/weirs.md"}
    assert await paths(filters={"metadata": {"team": "river"}}) == {"docs/weirs.md"}
    one = await client.post("/rag/retrieve", json={"query": "weir water mill", "top_k": 1})
    assert len(one.json()["results"]) == 1


async def test_a_part_of_a_table_has_the_head_of_the_table(client: httpx2.AsyncClient) -> None:
    rows = "\n".join(
        f"| heron {number} | the nest at weir number {number} |" for number in range(90)
    )
    table = f"# Nests\n\n| bird | place of its nest |\n|---|---|\n{rows}\n"
    assert (await indexed(client, content=table))["chunks_created"] > 1
    query = {"query": "heron 89", "top_k": 50}
    results = (await client.post("/rag/retrieve", json=query)).json()["results"]
    assert len(results) > 1
    assert all("| bird | place of its nest |\n" in result["content"] for result in results)


async def test_sources_are_listed_by_page(client: httpx2.AsyncClient) -> None:
    ids = {
        (await indexed(client, source_path=f"docs/{number}.md"))["source_id"] for number in range(3)
    }
    first = (await client.get("/rag/sources", params={"limit": 2})).json()
    assert (first["total_sources"], first["total_chunks"]) == (3, 3)
    rest = (await client.get("/rag/sources", params={"limit": 2, "after": first["next"]})).json()
    rows = first["sources"] + rest["sources"]
    assert {row["source_id"] for row in rows} == ids
    assert rest["next"] is None
    assert rows[0].keys() == {
        *("source_id", "source_type", "source_path", "chunk_count", "content_hash"),
        *("indexed_at", "metadata"),
    }


async def test_a_source_is_deleted_with_its_chunks(client: httpx2.AsyncClient) -> None:
    source = await indexed(client)
    path = f"/rag/sources/{source['source_id']}"
    deleted = await client.delete(path)
    assert deleted.status_code == 200
    assert deleted.json() == {
        "source_id": source["source_id"],
        "chunks_deleted": 1,
        "status": "deleted",
    }
    assert (await client.post("/rag/retrieve", json={"query": "weir"})).json()["results"] == []
    assert (await client.get("/rag/sources")).json()["total_sources"] == 0
    gone = await client.delete(path)
    assert (gone.status_code, gone.json()["code"]) == (404, "NotFound")
    assert "GET /rag/sources" in gone.json()["remedy"]


async def test_fields_out_of_bounds_are_refused(client: httpx2.AsyncClient) -> None:
    fields: list[tuple[str, dict[str, Any]]] = [
        ("index", {"source_type": "novel"}),
        ("index", {"source_path": ""}),
        ("index", {"source_path": "x" * 2049}),
        ("index", {"unknown": 1}),
        ("retrieve", {"query": ""}),
        ("retrieve", {"query": " "}),
        ("retrieve", {"query": "x" * 2001}),
        ("retrieve", {"top_k": 0}),
        ("retrieve", {"top_k": 51}),
        ("retrieve", {"similarity_threshold": -0.1}),
        ("retrieve", {"similarity_threshold": 1.1}),
        ("retrieve", {"filters": {"unknown": 1}}),
        ("retrieve", {"unknown": 1}),
    ]
    for path, body in fields:
        valid: dict[str, Any] = SOURCE if path == "index" else {"query": "weir"}
        response = await client.post(f"/rag/{path}", json={**valid, **body})
        assert response.status_code == 422, body
        (name,) = body
        assert response.json()["errors"][0]["pointer"].startswith(f"/{name}")


async def test_a_problem_names_the_field_of_the_request_alone(client: httpx2.AsyncClient) -> None:
    """It names neither a type of the code, nor the field of a question."""
    for path, body, pointer in (
        ("index", SOURCE | {"metadata": {"a": [1]}}, "/metadata/a"),
        ("retrieve", {"query": "weir", "filters": {"metadata": {"a": [1]}}}, "/filters/metadata/a"),
        ("retrieve", {"query": "weir", "filters": {"source_type": "x"}}, "/filters/source_type"),
        ("retrieve", {"query": "weir", "filters": {"source_path": "\0"}}, "/filters/source_path"),
        ("retrieve", {"query": "a\0"}, "/query"),
    ):
        response = await client.post(f"/rag/{path}", json=body)
        assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
        assert " must " in response.json()["detail"]


async def test_a_malformed_source_id_is_refused(client: httpx2.AsyncClient) -> None:
    for source_id in ("x", "A" * 32, "0" * 31, "0" * 33):
        response = await client.delete(f"/rag/sources/{source_id}")
        assert response.status_code == 422
        assert response.json()["errors"][0]["detail"] == "must have 32 hex digits"


async def test_a_file_is_read_below_the_directory_alone(client: httpx2.AsyncClient) -> None:
    """Without content; links, absolute paths and `..` lead nowhere."""
    read = {"source_type": "markdown", "source_path": "mill.md"}
    response = await client.post("/rag/index", json=read)
    assert (response.status_code, response.json()["status"]) == (201, "indexed")
    for path in ("link.md", "../secret.md", "/etc/passwd", "absent.md", ".", "a\x00b"):
        response = await client.post("/rag/index", json={**read, "source_path": path})
        assert response.status_code == 422, path
        assert response.json()["remedy"]


async def test_each_route_needs_its_right(served: Gateway) -> None:
    async def status(right: Right, method: str, path: str, body: Any = None) -> int:
        others = frozenset({Right.ASK, Right.READ, Right.PUBLISH}) - {right}
        headers = {"Authorization": f"Bearer {await served.key(rights=others)}"}
        async with httpx2.AsyncClient(base_url=served.url, headers=headers, timeout=60) as client:
            return (await client.request(method, path, json=body)).status_code

    assert await status(Right.PUBLISH, "POST", "/rag/index", SOURCE) == 403
    assert await status(Right.ASK, "POST", "/rag/retrieve", {"query": "weir"}) == 403
    assert await status(Right.READ, "GET", "/rag/sources") == 403
    assert await status(Right.PUBLISH, "DELETE", f"/rag/sources/{'0' * 32}") == 403


_OPENAPI = """openapi: 3.0.0
info: {title: Mill, version: "1"}
paths:
  /weir:
    get:
      summary: The water of the mill at the weir
      responses: {"200": {description: ok}}
"""
