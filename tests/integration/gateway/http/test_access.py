"""API keys and their rights over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx2
import pytest

from gateway.auth.callers import Right
from tests.support.gateways import Gateway

_ROUTES: list[tuple[Right, str, str, dict[str, Any]]] = [
    (Right.ASK, "POST", "ask", {"json": {"text": "herons"}}),
    (Right.ASK, "GET", "ask?q=herons", {}),
    (Right.ASK, "POST", "ask:batch", {"json": {"questions": [{"text": "herons"}]}}),
    (Right.PUBLISH, "PUT", "document?uri=a.md", {"content": b"Herons."}),
    (Right.PUBLISH, "DELETE", "document?uri=a.md", {}),
    (Right.PUBLISH, "POST", "document:move", {"json": {"old_uri": "a", "uri": "b"}}),
    (Right.PUBLISH, "POST", "changes", {"json": [{"data": {"uri": "a", "content": "b"}}]}),
    (Right.READ, "GET", "", {}),
    (Right.READ, "GET", "documents", {}),
    (Right.READ, "GET", "document?uri=a.md", {}),
    (Right.READ, "GET", "text?uri=a.md", {}),
    (Right.READ, "GET", "chunks?uri=a.md", {}),
    (Right.READ, "GET", "collections", {}),
    (Right.READ, "GET", "sources", {}),
]


async def test_a_route_needs_its_right_and_its_project(served: Gateway) -> None:
    others = {right: frozenset(Right) - {right, Right.OPERATE} for right in Right}
    without = {right: await served.key(rights=rights) for right, rights in others.items()}
    foreign = await served.key("other")
    async with httpx2.AsyncClient(timeout=60) as client:
        for right, method, path, body in _ROUTES:
            url = f"{served.url}/v1/projects/{served.project}/{path}".removesuffix("/")
            send = partial(client.request, method, url, **body)
            if path != "document:move":  # a move also reads
                assert await refusal(send, without[right]) == (403, "Forbidden"), path
            assert await refusal(send, foreign) == (404, "UnknownProject"), path
            assert await refusal(send, None) == (401, "Unauthenticated"), path
            unknown = "hr_AAAAAAAA_" + "A" * 43
            assert await refusal(send, unknown) == (401, "Unauthenticated"), path


async def refusal(
    send: Callable[..., Awaitable[httpx2.Response]], key: str | None
) -> tuple[int, str]:
    """Send a request with a key; return status and code of the problem."""
    response = await send(headers={} if key is None else {"Authorization": f"Bearer {key}"})
    problem = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["remedy"]
    return response.status_code, problem["code"]


async def test_without_a_key_only_the_process_is_shown(served: Gateway) -> None:
    async with httpx2.AsyncClient(base_url=served.url, timeout=60) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json() == {"status": "ok", "missing": []}
        assert (await client.get("/openapi.json")).json()["openapi"].startswith("3.1")
        assert (await client.get("/asyncapi.json")).json()["asyncapi"].startswith("3.")
        assert (await client.get("/v1/projects")).status_code == 401


async def test_no_part_of_a_request_runs_in_a_thread(
    served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FastAPI runs functions that are not async in threads, which costs as much as the request."""

    def start_thread(*_: object, **__: object) -> None:
        raise AssertionError("a function of the route is not async")

    for module in ("fastapi.dependencies.utils", "fastapi.routing"):
        monkeypatch.setattr(f"{module}.run_in_threadpool", start_thread)
    async with served.client() as client:
        assert (await client.post("ask", json={"text": "herons"})).status_code == 200


async def test_a_key_sees_its_own_project_and_an_operators_key_all(served: Gateway) -> None:
    both = {served.project, f"{served.project}-other"}
    for project in both:
        async with served.client(project) as client:
            await client.put("document", params={"uri": "a.md"}, content=b"Herons.")

    async def projects(key: str) -> set[str]:
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(base_url=served.url, headers=headers, timeout=60) as client:
            items = (await client.get("/v1/projects")).json()["items"]
        return {item["project"] for item in items}

    assert await projects(await served.key()) == {served.project}
    assert await projects(await served.key(None)) >= both


async def test_unknown_fields_and_parameters_are_refused(client: httpx2.AsyncClient) -> None:
    response = await client.post("ask", json={"text": "herons", "limits": 3})
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/limits"
    response = await client.get("documents", params={"limits": "3"})
    assert (response.status_code, response.json()["code"]) == (422, "UsageError")
    response = await client.post("ask", json={"text": "herons", "limit": 101})
    assert response.json()["errors"][0]["pointer"] == "/limit"
    response = await client.post("ask", content=b"{", headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (400, "MalformedRequest")


async def test_only_a_published_document_has_metadata_in_its_address(
    client: httpx2.AsyncClient,
) -> None:
    routes: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "documents", {}),
        ("GET", "ask?q=herons", {}),
        ("POST", "ask", {"json": {"text": "herons"}}),
        ("DELETE", "document?uri=a.md", {}),
        ("POST", "changes", {"json": [{"data": {"uri": "a.md", "content": "Herons."}}]}),
    ]
    for method, path, body in routes:
        url = httpx2.URL(path).copy_add_param("meta.year", "2026")
        response = await client.request(method, url, **body)
        assert (response.status_code, response.json()["code"]) == (422, "UsageError"), path
        assert "'meta.year'" in response.json()["detail"]


async def test_the_address_of_a_document_names_its_parameters(client: httpx2.AsyncClient) -> None:
    response = await client.put("document", params={"uri": "a.md", "met.year": "1"}, content=b"a")
    assert response.status_code == 422
    assert "meta.NAME" in response.json()["remedy"]


async def test_requests_over_the_rate_of_a_key_wait(served: Gateway) -> None:
    async with served.client(requests_per_minute=2) as client:
        responses = [await client.get("documents") for _ in range(3)]
    assert [response.status_code for response in responses] == [200, 200, 429]
    assert 1 <= int(responses[2].headers["retry-after"]) <= 60
    assert responses[0].headers["ratelimit-policy"] == '"requests";q=2;w=60'
