"""Metrics and log lines of calls over HTTP."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ResourceTemplateReference
from structlog.testing import capture_logs

from gateway.mcp.resources import STATUS, TEMPLATES
from runtime import metrics
from runtime.errors import LogFull, RateLimited, Unavailable
from tests.support.mcp_backends import KEY, FixedBackend, access, serving
from tests.support.s3 import free_port

WORD = "zephyr"


class Failing(FixedBackend):
    """Raises a different error in each operation."""

    async def remember(self, document: Any) -> Any:
        """Refuse for the bytes of the key."""
        raise RateLimited("used up", retry_after=timedelta(seconds=5))

    async def forget(self, document: Any) -> Any:
        """Refuse for the memory of Redis."""
        raise LogFull("full")

    async def status(self, project: str) -> Any:
        """Fail as without Postgres."""
        raise Unavailable("no Postgres")

    async def documents(self, page: Any) -> Any:
        """Fail with a defect."""
        raise RuntimeError("defect")


async def connect(exits: AsyncExitStack, url: str) -> Client:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"})
    await exits.enter_async_context(http)
    return await exits.enter_async_context(Client(streamable_http_client(url, http_client=http)))


def grown(before: dict[str, float], name: str) -> dict[str, float]:
    """Series of a metric that have grown, with the difference."""
    return {
        series: value - before.get(series, 0)
        for series, value in metrics.snapshot().items()
        if series.startswith(name) and value != before.get(series, 0)
    }


async def test_each_call_is_counted_and_logged_without_its_text() -> None:
    """The labels are of closed sets: a name that a client makes up is none of them."""
    before = metrics.snapshot()
    with capture_logs() as lines:
        async with serving(access(Failing()), free_port()) as url, AsyncExitStack() as exits:
            client = await connect(exits, url)
            await client.call_tool("search", {"query": WORD})
            await client.call_tool("search", {"query": WORD, WORD: 1})
            await client.call_tool("remember", {"uri": WORD, "content": WORD})
            await client.call_tool("forget", {"uri": WORD})
            await client.call_tool("list", {"under": WORD})
            await client.call_tool(WORD, {})
            await client.read_resource("headrace://docs/docs/herons.md")
            for uri in (f"headrace://docs/{WORD}", STATUS):
                with pytest.raises(MCPError):
                    await client.read_resource(uri)
            reference = ResourceTemplateReference(uri=TEMPLATES[0].uri_template)
            await client.complete(reference, {"name": "project", "value": WORD})
    calls = [
        ("search", "ok"),
        ("search", "InvalidArguments"),
        ("remember", "RateLimited"),
        ("forget", "LogFull"),
        ("list", "InternalError"),
        ("none", "UnknownTool"),
        ("resource", "ok"),
        ("resource", "NotFound"),
        ("resource", "Unavailable"),
        ("completion", "ok"),
    ]
    assert grown(before, "headrace_mcp_calls_total") == {
        f"headrace_mcp_calls_total{{tool={tool},transport=http,outcome={outcome}}}": 1
        for tool, outcome in calls
    }
    seconds = grown(before, "headrace_mcp_call_seconds")
    assert seconds["headrace_mcp_call_seconds{tool=resource,transport=http}.count"] == 3
    tokens = grown(before, "headrace_mcp_result_tokens")
    assert tokens["headrace_mcp_result_tokens{tool=search}.count"] == 2
    assert tokens["headrace_mcp_result_tokens{tool=resource}.sum"] == 14
    assert not [series for series in tokens if "completion" in series]
    assert grown(before, "headrace_rate_limited_total") == {
        "headrace_rate_limited_total{reason=RateLimited}": 1
    }
    assert grown(before, "headrace_publishing_refused_total") == {
        "headrace_publishing_refused_total{reason=LogFull}": 1
    }
    logged = [line for line in lines if line["event"] == "mcp.call"]
    assert [(line["tool"], line["status"]) for line in logged] == calls
    assert all(line["ms"] >= 0 for line in logged)
    assert all(line.keys() >= {"key", "request"} for line in logged)
    assert WORD not in str(logged)
