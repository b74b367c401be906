"""Outcomes of changes over HTTP, from when they are accepted."""

from __future__ import annotations

import json

import httpx2
import pytest

from events.client.client import Client
from events.models import DocumentChange, DocumentChanged
from events.names import Names
from tests.support.databases import Database
from tests.support.gateways import gateway
from tests.support.running import headrace
from tests.support.waiting import eventually

WAIT = {"Prefer": "wait=30"}


async def published(client: httpx2.AsyncClient, path: str) -> str:
    """Publish a document, and return the token."""
    response = await client.put(path, params={"uri": "a.md"}, content=b"Herons.")
    assert response.status_code == 202, response.text
    return str(response.json()["token"])


@pytest.mark.parametrize("project", ["docs", None])
async def test_an_accepted_change_waits_until_it_is_handled(
    redis_url: str, database: Database, project: str | None
) -> None:
    """Also in a project that its first change creates, which only an operator's key can name."""
    async with gateway(redis_url, database) as served, served.client(project) as client:
        path = "" if project else "v1/projects/new/"
        token = await published(client, f"{path}document")
        waiting = await client.get(f"{path}change", params={"token": token})
        assert (waiting.status_code, waiting.json()) == (200, {"token": token, "state": "waiting"})
        async with headrace(redis_url, database):
            handled = await client.get(f"{path}change", params={"token": token}, headers=WAIT)
        assert (handled.status_code, handled.json()["state"]) == (200, "indexed")


async def test_changes_of_a_request_wait_too(redis_url: str, database: Database) -> None:
    events = [{"data": {"uri": f"{number}.md", "content": "Herons."}} for number in range(3)]
    async with gateway(redis_url, database) as served, served.client() as client:
        receipts = (await client.post("changes", json=events)).json()["receipts"]
        for receipt in receipts:
            change = await client.get("change", params={"token": receipt["token"]})
            assert change.json()["state"] == "waiting"


async def test_a_token_of_another_project_is_unknown(redis_url: str, database: Database) -> None:
    async with (
        gateway(redis_url, database) as served,
        served.client() as client,
        served.client("other") as other,
    ):
        token = await published(client, "document")
        foreign = await other.get("change", params={"token": token})
        milliseconds = token.split(":")[2].partition("-")[0]
        never = await client.get("change", params={"token": f"live:0:{milliseconds}-4711"})
        wrong = await client.get("change", params={"token": "4711"})
    for response in (foreign, never):
        assert (response.status_code, response.json()["code"]) == (404, "NotFound")
    assert (wrong.status_code, wrong.json()["code"]) == (422, "UsageError")


async def test_a_change_that_was_published_past_the_gateway_is_found_by_its_event_id(
    redis_url: str, database: Database
) -> None:
    """It waits for its outcome too. Another project has no such change, nor has another id."""
    event = DocumentChanged(
        id="spring/1", data=DocumentChange(project="docs", uri="a.md", content="Herons.")
    )
    async with (
        gateway(redis_url, database) as served,
        served.client() as client,
        served.client("other") as other,
        Client.connect(redis_url) as publisher,
    ):
        receipt = await publisher.publish(event)
        by_id = {"event_id": event.id}
        unnoted = await client.get("change", params={"token": receipt.token})
        assert unnoted.status_code == 404
        waiting = await client.get("change", params=by_id)
        assert waiting.json() == {"token": receipt.token, "state": "waiting"}
        for response in (
            await other.get("change", params=by_id),
            await client.get("change", params={"event_id": "spring/2"}),
        ):
            assert (response.status_code, response.json()["code"]) == (404, "NotFound")
        async with headrace(redis_url, database):
            handled = (await client.get("change", params=by_id, headers=WAIT)).json()
        assert (handled["state"], handled["token"]) == ("indexed", receipt.token)


async def test_a_change_is_named_in_one_way(redis_url: str, database: Database) -> None:
    async with gateway(redis_url, database) as served, served.client() as client:
        token = await published(client, "document")
        for parameters in ({}, {"token": token, "event_id": "a"}):
            response = await client.get("change", params=parameters)
            assert (response.status_code, response.json()["code"]) == (422, "UsageError")


async def test_an_event_id_of_changes_in_several_partitions_is_ambiguous(
    redis_url: str, database: Database
) -> None:
    names = Names(partitions=2)
    uris = {names.partition_of("docs", f"{number}.md"): f"{number}.md" for number in range(20)}
    events = [{"id": "spring", "data": {"uri": uri, "content": ""}} for uri in uris.values()]
    async with (
        gateway(redis_url, database, partitions=2) as served,
        served.client() as client,
    ):
        published_changes = await client.post("changes", json=events)
        assert published_changes.status_code == 202, published_changes.text
        response = await client.get("change", params={"event_id": "spring"})
    assert (response.status_code, response.json()["code"]) == (409, "Conflict")


async def test_a_request_names_the_batch_of_its_events(redis_url: str, database: Database) -> None:
    """Except of those that name one themselves."""
    events = [
        {"data": {"uri": "a.md", "content": "Herons."}},
        {"data": {"uri": "b.md", "content": "Owls."}, "batch": None},
        {"data": {"uri": "c.md", "content": "Swans."}, "batch": "swans"},
    ]
    async with gateway(redis_url, database) as served, served.client() as client:
        response = await client.post("changes", json=events, params={"batch": "spring"})
        assert (response.status_code, response.json()["batch"]) == (202, "spring")
        for batch, changes in (("spring", 2), ("swans", 1)):
            progress = (await client.get(f"batch/{batch}")).json()["progress"]
            assert progress["published"] == changes
        wrong = await client.post("changes", json=events, params={"batch": "b" * 65})
        assert wrong.status_code == 422


async def test_the_progress_of_a_batch_counts_what_was_published(
    redis_url: str, database: Database
) -> None:
    """A request that is repeated counts once, and several requests make one batch."""
    requests = [
        [
            {"id": f"{uri}", "batch": "import", "data": {"uri": uri, "content": "Herons."}}
            for uri in uris
        ]
        for uris in (["a.md", "b.md"], ["c.md"])
    ]
    async with gateway(redis_url, database) as served, served.client(None) as client:
        path = "v1/projects/new"

        async def numbers() -> tuple[int, int]:
            body = (await client.get(f"{path}/batch/import")).json()
            return body["progress"]["published"], body["progress"]["waiting"]

        for events, published in ((requests[0], 2), (requests[0], 2), (requests[1], 3)):
            response = await client.post(f"{path}/changes", json=events)
            assert response.status_code == 202, response.text
            assert await numbers() == (published, published)
        structured = {"batch": "import", "data": {"uri": "d.md", "content": "Herons."}}
        media_type = {"Content-Type": "application/cloudevents+json"}
        await client.post(f"{path}/changes", content=json.dumps(structured), headers=media_type)
        binary = {
            "ce-type": "document.changed",
            "ce-batch": "import",
            "Content-Type": "text/plain",
        }
        data = json.dumps({"uri": "e.md", "content": "Herons."})
        await client.post(f"{path}/changes", content=data, headers=binary)
        assert await numbers() == (5, 5)

        async def all_are_handled() -> bool:
            return await numbers() == (5, 0)

        async with headrace(redis_url, database):
            await eventually(all_are_handled, "all changes of the batch are handled")
        progress = (await client.get(f"{path}/batch/import")).json()["progress"]
        assert (progress["indexed"], progress["duplicate"]) == (5, 0)
