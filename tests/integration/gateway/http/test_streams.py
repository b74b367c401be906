"""Event streams over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
import pytest

from gateway.auth.callers import Right
from runtime.errors import NotFound, Unavailable
from store.views.batches import Batches, BatchProgress
from tests.integration.gateway.http.test_documents import put
from tests.support.gateways import Gateway


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    data: Any
    id: str | None


@asynccontextmanager
async def stream(
    client: httpx2.AsyncClient, method: str, path: str, **request: Any
) -> AsyncIterator[AsyncIterator[Event]]:
    """Open an event stream; the iterator leaves out comments."""
    async with client.stream(method, path, **request) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.aiter_lines()
        assert await anext(lines) == "retry: 2000"
        yield _events(lines)


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[Event]:
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield Event(fields["event"], json.loads(fields["data"]), fields.get("id"))
            fields = {}


async def test_outcomes_follow_and_go_on_after_a_lost_connection(
    client: httpx2.AsyncClient,
) -> None:
    async with stream(client, "GET", "events") as events:
        await put(client, "a.md")
        first = await anext(events)
    assert (first.name, first.data["uri"]) == ("document.indexed", "a.md")
    assert first.id is not None
    await put(client, "b.md")
    await put(client, "c.md")
    headers = {"Last-Event-ID": first.id}
    async with stream(client, "GET", "events", headers=headers) as events:
        await put(client, "d.md")
        uris = [(await anext(events)).data["uri"] for _ in range(3)]
    assert uris == ["b.md", "c.md", "d.md"]


async def test_only_the_wanted_outcomes_of_the_caller_follow(served: Gateway) -> None:
    async with (
        served.client(agent="ana") as ana,
        served.client(agent="bo") as bo,
        served.client(f"{served.project}-other") as other,
        stream(bo, "GET", "events", params={"prefix": "birds/"}) as events,
    ):
        await put(other, "birds/other.md")
        await put(ana, "birds/secret.md", private="true")
        await put(ana, "notes.md")
        await put(bo, "birds/mine.md", private="true")
        await put(ana, "birds/shared.md")
        uris = [(await anext(events)).data["uri"] for _ in range(2)]
    assert uris == ["birds/mine.md", "birds/shared.md"]


async def test_the_progress_of_a_batch_follows_to_its_end(client: httpx2.AsyncClient) -> None:
    async with stream(client, "GET", "events", params={"batch": "import-1"}) as events:
        changes = [
            {"batch": "import-1", "data": {"uri": f"{number}.md", "content": "Herons."}}
            for number in range(20)
        ]
        assert (await client.post("changes", json=changes)).status_code == 202
        await put(client, "of-no-batch.md")
        indexed: set[str] = set()
        counted = 0
        while len(indexed) < 20 or counted < 20:  # the ledger is ahead of the outcomes
            event = await anext(events)
            if event.name == "document.indexed":
                indexed.add(event.data["uri"])
            elif event.name == "batch.progress":
                counted = event.data["indexed"]
    assert indexed == {f"{number}.md" for number in range(20)}
    unknown = await client.get("batch/import-2")
    assert (unknown.status_code, "the id" in unknown.json()["remedy"]) == (404, True)
    shown = (await client.get("batch/import-1")).json()
    assert (shown["progress"]["indexed"], shown["rejected"]) == (20, [])


async def test_progress_counts_the_changes_that_the_stream_leaves_out(
    client: httpx2.AsyncClient,
) -> None:
    """It reaches the end of a batch, although the last outcomes are of other uris."""
    params = {"batch": "import-3", "prefix": "birds/"}
    async with stream(client, "GET", "events", params=params) as events:
        for number, uri in enumerate(("birds/a.md", "fish/b.md", "fish/c.md"), start=1):
            change = {"batch": "import-3", "data": {"uri": uri, "content": "Herons."}}
            assert (await client.post("changes", json=[change])).status_code == 202
            counted = 0
            while counted < number:
                event = await anext(events)
                if event.name == "batch.progress":
                    counted = event.data["indexed"]
                else:
                    assert event.data["uri"] == "birds/a.md"


async def test_outcomes_follow_while_a_batch_can_not_be_counted(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress follows as soon as it can be counted."""
    count = Batches.progress
    is_unknown = asyncio.Event()
    failures: list[Unavailable] = []

    async def fail_once(batches: Batches, project: str, batch: str) -> BatchProgress:
        if failures:
            raise failures.pop()
        try:
            return await count(batches, project, batch)
        except NotFound:
            is_unknown.set()
            raise

    monkeypatch.setattr(Batches, "progress", fail_once)
    async with stream(client, "GET", "events", params={"batch": "import-4"}) as events:
        await is_unknown.wait()
        failures.append(Unavailable("a statement took too long", "try again"))
        change = {"batch": "import-4", "data": {"uri": "a.md", "content": "Herons."}}
        assert (await client.post("changes", json=[change])).status_code == 202
        names = [(await anext(events)).name for _ in range(2)]
    assert names == ["document.indexed", "batch.progress"]
    assert not failures


async def test_a_batch_can_be_followed_before_its_first_change(client: httpx2.AsyncClient) -> None:
    """The first position comes at once, so that no later outcome is missed."""
    params = {"batch": "import-2"}
    async with client.stream("GET", "events", params=params) as response:
        lines = response.aiter_lines()
        assert await anext(lines) == "retry: 2000"
        assert [await anext(lines) for _ in range(2)] == ["", ": nothing new"]
        assert (await anext(lines)).startswith("id: 0:")
        change = {"batch": "import-2", "data": {"uri": "a.md", "content": "Herons."}}
        assert (await client.post("changes", json=[change])).status_code == 202
        events = _events(lines)
        names = {(await anext(events)).name for _ in range(2)}
    assert names == {"document.indexed", "batch.progress"}


async def test_a_position_alone_is_enough_to_go_on(client: httpx2.AsyncClient) -> None:
    """Changes that are published after the connection is lost follow in the next one."""
    async with client.stream("GET", "events") as response:
        position = await anext(
            line async for line in response.aiter_lines() if line.startswith("id: ")
        )
    await put(client, "a.md")
    headers = {"Last-Event-ID": position.removeprefix("id: ")}
    async with stream(client, "GET", "events", headers=headers) as events:
        assert (await anext(events)).data["uri"] == "a.md"


async def test_a_question_as_a_stream_has_exactly_one_end(client: httpx2.AsyncClient) -> None:
    await put(client, "a.md")
    headers = {"Accept": "text/event-stream"}
    question = {"text": "herons", "mode": "keyword"}
    async with stream(client, "POST", "ask", json=question, headers=headers) as events:
        seen = [event async for event in events if event.name != "query.waiting"]
    assert [event.name for event in seen] == ["query.answered"]
    assert seen[0].data["results"][0]["citation"]["uri"] == "a.md"


async def test_a_wrong_last_event_id_is_refused(client: httpx2.AsyncClient) -> None:
    for wrong in ("1", "0:1", "0:1-0;", "x" * 300, "0:1-0,"):
        response = await client.get("events", headers={"Last-Event-ID": wrong})
        assert (response.status_code, response.json()["code"]) == (422, "UsageError"), wrong


async def test_a_stream_needs_the_right_to_read(served: Gateway) -> None:
    async with served.client(rights={Right.ASK}) as client:
        assert (await client.get("events")).status_code == 403
