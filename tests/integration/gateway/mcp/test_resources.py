"""Resources, completions and results over HTTP, by the SDK's client, from a real deployment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.uri_template import UriTemplate
from mcp_types import ResourceTemplateReference, TextResourceContents

from gateway.auth.callers import Right
from gateway.mcp import tools
from gateway.mcp.backends import NOT_HERE, Backend, KnowledgeBackend
from gateway.mcp.remote import open_remote
from gateway.mcp.resources import TEMPLATES, Address, complete, read
from runtime.errors import HeadraceError
from tests.support.gateways import Gateway

ERAS = ["auto", "legacy"]
DOCUMENT, LINES = (template.uri_template for template in TEMPLATES)


@asynccontextmanager
async def connected(
    served: Gateway, era: str, *, query: str = "", **properties: Any
) -> AsyncIterator[Client]:
    """Client of the SDK with a new API key."""
    headers = {"Authorization": f"Bearer {await served.key(**properties)}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{served.url}/mcp{query}", http_client=http)
        async with Client(transport, mode=era) as client:
            yield client


async def text_of(client: Client, uri: str) -> str:
    """Text of a resource that is not cut."""
    [content] = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    assert content.uri == uri
    return content.text


@pytest.mark.parametrize("era", ERAS)
async def test_every_completion_opens_its_document(
    served: Gateway, texts: dict[str, str], era: str
) -> None:
    """A host expands the template with the value, and reads the document, or lines of it."""
    async with connected(served, era) as client:
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == [DOCUMENT, LINES]
        reference = ResourceTemplateReference(uri=DOCUMENT)
        completed = await client.complete(reference, {"name": "uri", "value": ""})
        assert completed.completion.has_more is False
        values = completed.completion.values
        uris = [
            UriTemplate.parse(DOCUMENT).expand({"project": "docs", "uri": value})
            for value in values
        ]
        assert sorted([await text_of(client, uri) for uri in uris]) == sorted(texts.values())

        begun = await client.complete(reference, {"name": "uri", "value": "birds/her"})
        assert begun.completion.values == ["birds/herons.md"]
        lines = {"project": "docs", "uri": "birds/herons.md", "start": "3", "end": "3"}
        shown = await text_of(client, UriTemplate.parse(LINES).expand(lines))
        assert shown == "Herons nest in March."


@pytest.mark.parametrize("era", ERAS)
async def test_the_status_and_the_kinds_of_documents(
    served: Gateway, texts: dict[str, str], era: str
) -> None:
    async with connected(served, era) as client:
        [listed] = (await client.list_resources()).resources
        assert f"documents: {len(texts)}" in await text_of(client, listed.uri)
        kinds = {
            uri: (await client.read_resource(str(Address("docs", uri)))).contents[0].mime_type
            for uri in texts
        }
    assert list(kinds.values()) == ["text/markdown", "text/markdown", "text/x-rst", "text/plain"]


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_theirs_is_neither_read_nor_completed(
    served: Gateway, texts: dict[str, str], era: str
) -> None:
    """Another project is refused as one that does not exist."""
    reference = ResourceTemplateReference(uri=DOCUMENT)
    async with connected(served, era) as client:
        for uri in ("headrace://other/birds/theirs.md", "headrace://none/birds/theirs.md"):
            with pytest.raises(MCPError, match="there is no project") as refused:
                await client.read_resource(uri)
            assert refused.value.data["code"] == "UnknownProject"
        with pytest.raises(MCPError, match="there is no project"):
            await client.complete(
                reference, {"name": "uri", "value": "birds"}, {"project": "other"}
            )
        value = {"name": "uri", "value": "birds/theirs"}
        assert (await client.complete(reference, value)).completion.values == []
    async with connected(served, era, rights={Right.ASK}) as client:
        with pytest.raises(MCPError, match="does not have the right 'read'"):
            await client.read_resource("headrace://docs/birds/herons.md")


async def test_a_client_may_leave_the_structured_part_out(
    served: Gateway, texts: dict[str, str]
) -> None:
    """``?results=text`` keeps the text; any other parameter is refused."""
    async with connected(served, "auto", query="?results=text") as client:
        result = await client.call_tool("read", {"uri": "birds/herons.md"})
        assert result.structured_content is None
        assert "3\tHerons nest in March." in result.content[0].text  # type: ignore[union-attr]
    async with served.client() as client:
        for parameters in ({"results": "json"}, {"result": "text"}):
            response = await client.post(f"{served.url}/mcp", params=parameters, json={})
            assert (response.status_code, response.json()["code"]) == (422, "UsageError")


async def test_a_gateway_and_a_database_give_the_same(
    served: Gateway, texts: dict[str, str]
) -> None:
    """The backends of `headrace mcp`, with HEADRACE_URL and without, agree on documents."""
    key = await served.key()
    caller = await served.services.authenticator.authenticate(key, "127.0.0.1")
    here = KnowledgeBackend(caller, served.services.knowledge)

    async def described(backend: Backend) -> list[Any]:
        page = await backend.documents(tools.List(project="docs"))
        documents = [*page.documents, *[await backend.document("docs", uri) for uri in texts]]
        facts: list[Any] = [(row.uri, row.kind, row.title, row.lines) for row in documents]
        facts.append(await complete(backend, "docs", "birds/"))
        assert (await backend.refresh("docs")) == NOT_HERE, "a gateway does not read the files"
        facts += [await read(backend, Address("docs", uri, 1, 2), "asked") for uri in texts]
        for project, uri in (("docs", "none.md"), ("other", "birds/theirs.md")):
            with pytest.raises(HeadraceError) as refused:
                await backend.document(project, uri)
            facts.append((refused.value.code, refused.value.message))
        return facts

    async with open_remote(served.url, key) as remote:
        there = await described(remote)
    assert there == await described(here)
