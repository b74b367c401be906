"""Limits of a caller, and its changes, by HTTP and MCP alike."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.gateways import Gateway

TEXT = "Herons nest in March. " * 100
LIMIT_BYTES = 1_000
Publish = Callable[[Gateway, httpx2.AsyncClient, int], Awaitable[str]]


async def put(served: Gateway, client: httpx2.AsyncClient, number: int) -> str:
    """Publish a document; return '' or the code of the error."""
    return _code(await client.put("document", params={"uri": f"{number}.md"}, content=TEXT))


async def changes(served: Gateway, client: httpx2.AsyncClient, number: int) -> str:
    """Publish events, of which each is smaller than the limit."""
    lines = (
        json.dumps({"data": {"uri": f"{number}-{part}.md", "content": TEXT[:500]}})
        for part in range(5)
    )
    headers = {"Content-Type": "application/x-ndjson"}
    return _code(await client.post("changes", content="\n".join(lines), headers=headers))


async def metadata(served: Gateway, client: httpx2.AsyncClient, number: int) -> str:
    """Publish a short document with long metadata."""
    parameters = {"uri": f"{number}.md", "meta.note": TEXT[:2_000]}
    return _code(await client.put("document", params=parameters, content=b"Short."))


async def index(served: Gateway, client: httpx2.AsyncClient, number: int) -> str:
    """Publish by the retrieval API."""
    fields = {"source_type": "markdown", "source_path": f"{number}.md", "content": TEXT}
    return _code(await client.post(f"{served.url}/rag/index", json=fields))


async def call(served: Gateway, client: httpx2.AsyncClient, tool: str, **arguments: Any) -> Any:
    """Call a tool of MCP; return its result."""
    transport = streamable_http_client(f"{served.url}/mcp", http_client=client)
    async with Client(transport) as session:
        return (await session.call_tool(tool, arguments)).structured_content


async def remember(served: Gateway, client: httpx2.AsyncClient, number: int) -> str:
    """Publish by the tool of MCP."""
    shown = await call(served, client, "remember", uri=f"{number}.md", content=TEXT)
    error = shown.get("error", {})
    assert not error or 1 <= error["retry_after_s"] <= 300
    return str(error.get("code", ""))


def _code(response: httpx2.Response) -> str:
    if response.is_success:
        return ""
    assert response.status_code == 429, response.text
    assert 1 <= int(response.headers["retry-after"]) <= 300
    return str(response.json()["code"])


@pytest.mark.parametrize("publish", [put, changes, metadata, index, remember])
async def test_published_bytes_are_limited(served: Gateway, publish: Publish) -> None:
    """A document over the limit passes once; then the key waits. Deletions cost nothing."""
    async with served.client(bytes_per_minute=LIMIT_BYTES) as client:
        assert [await publish(served, client, number) for number in range(2)] == ["", "RateLimited"]
        assert (await client.delete("document", params={"uri": "0.md"})).status_code == 202
    async with served.client() as other:
        assert await publish(served, other, 2) == ""


async def test_bytes_are_one_limit_of_all_faces(served: Gateway) -> None:
    """Bytes published over HTTP are counted for MCP too, and the other way round."""
    for first, second in ((put, remember), (remember, put)):
        async with served.client(bytes_per_minute=LIMIT_BYTES) as client:
            codes = [await first(served, client, 1), await second(served, client, 2)]
        assert codes == ["", "RateLimited"]


async def test_a_refused_search_names_the_argument_of_the_tool(served: Gateway) -> None:
    async with served.client() as client:
        for arguments, name in (({"query": " "}, "query"), ({"paths": [""]}, "paths")):
            shown = await call(served, client, "search", **({"query": "herons"} | arguments))
            assert shown["error"]["detail"].startswith(f"{name}: ")


async def test_a_rename_publishes_the_content_again(served: Gateway) -> None:
    async with served.client(bytes_per_minute=LIMIT_BYTES) as client:
        wait = {"Prefer": "wait=30"}
        content = TEXT[:900]
        await client.put("document", params={"uri": "a.md"}, content=content, headers=wait)
        path = f"{served.url}/v1/projects/{served.project}/document:move"
        moved = await client.post(path, json={"old_uri": "a.md", "uri": "b.md"})
    assert (moved.status_code, moved.json()["code"]) == (429, "RateLimited")


async def test_an_agent_sees_why_its_private_change_was_rejected(served: Gateway) -> None:
    """The holder of another key sees the state of a change alone, by its token."""
    document = {"uri": "a.pdf", "private": "true"}
    wait = {"Prefer": "wait=30"}
    async with served.client(agent="ana") as ana, served.client(agent="bo") as bo:
        response = await ana.put("document", params=document, content=b"no PDF", headers=wait)
        rejected = response.json()
        assert rejected["outcome"] == "rejected"
        token = {"token": rejected["token"]}
        change = (await ana.get("change", params=token)).json()
        assert (change["uri"], change["agent"]) == ("a.pdf", "ana")
        assert change["detail"] == rejected["detail"]
        shown = await call(served, ana, "status", **token)
        assert shown == token | {"state": "rejected", "detail": rejected["detail"]}
        change = (await bo.get("change", params=token)).json()
        assert (change["state"], change["uri"], change["agent"]) == ("rejected", None, None)
        assert await call(served, bo, "status", **token) == token | {"state": "rejected"}
