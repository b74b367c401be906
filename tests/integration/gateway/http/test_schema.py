"""The OpenAPI document against the gateway: its examples, and generated requests.

``HEADRACE_TEST_REQUESTS=100`` generates as many for each route and kind of data.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import httpx2
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable

from gateway.auth.callers import Right
from gateway.http.openapi import ROUTES, Operation, operations
from runtime.embedded import EmbeddedPostgres
from tests.support.gateways import Gateway, deployment

_SEED = 7
_REQUESTS = int(os.environ.get("HEADRACE_TEST_REQUESTS", "4"))
"""Generated requests for each route and kind of data; each is sent with a key and without one."""
_STARTS_PROCESSES = "/replays"


@pytest.fixture(scope="module")
async def served(
    redis_server: str, postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    """An operator's gateway beside a worker."""
    home = tmp_path_factory.mktemp("served")
    async with deployment(redis_server, postgres_server, home, operator=True) as running:
        yield running


async def document_of(served: Gateway) -> dict[str, Any]:
    async with httpx2.AsyncClient(timeout=60) as client:
        document: dict[str, Any] = (await client.get(f"{served.url}/openapi.json")).json()
    return document


def check_response(
    document: dict[str, Any], operation: Operation, response: httpx2.Response
) -> None:
    """Check that a response is as the document describes it, and no defect."""
    assert response.status_code != 500, (operation.name, response.request.url, response.text)
    described = operation.description["responses"]
    status = str(response.status_code)
    where = (operation.name, response.request.url, response.text[:500])
    assert response.status_code < 500 or status in described, where
    assert status in described or ("default" in described and response.is_error), where
    shown = described.get(status, described.get("default"))
    if "$ref" in shown:
        shown = document["components"]["responses"][shown["$ref"].rpartition("/")[2]]
    if "content" not in shown:
        return
    media_type = response.headers["content-type"].partition(";")[0]
    assert media_type in shown["content"], where
    schema = shown["content"][media_type].get("schema", {})
    if media_type.endswith("json"):
        root = {**schema, "components": document["components"]}
        jsonschema_rs.Draft202012Validator(root).validate(response.json())


def example_request(operation: Operation, project: str = "docs") -> dict[str, Any]:
    """Arguments of a request that sends the example of a route."""
    values = {**operation.example, "project": project}
    places = {parameter["name"]: parameter["in"] for parameter in operation.parameters}
    path = operation.path
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
    named = {
        place: {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in values.items()
            if places.get(name) == place
        }
        for place in ("query", "header")
    }
    headers = named["header"]
    if operation.body is not None:
        headers = {**headers, "Content-Type": operation.body[0]}
    return {
        "method": operation.method,
        "url": path,
        "params": named["query"],
        "headers": headers,
        "content": operation.body_text.encode() or None,
    }


async def test_every_route_is_described(served: Gateway) -> None:
    """Each has a summary, its right, its errors and an example, and no description is left over."""
    document = await document_of(served)
    described = list(operations(document))
    assert {operation.name for operation in described} == set(ROUTES)
    scheme = document["components"]["securitySchemes"]["api_key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for operation in described:
        assert operation.description["summary"], operation.name
        assert operation.description["description"], operation.name
        assert operation.is_open or operation.right in set(Right), operation.name
        required = {p["name"] for p in operation.parameters if p.get("required")}
        assert required <= set(operation.example), operation.name
        has_body = operation.description.get("requestBody", {}).get("required", False)
        assert operation.body is not None or not has_body, operation.name
        if not operation.is_open:
            assert {"401", "422", "503"} <= set(operation.description["responses"])


async def test_the_examples_are_accepted(served: Gateway) -> None:
    """Each example is answered as described; what it names exists, or is not found."""
    document = await document_of(served)
    described = list(operations(document))
    async with (
        served.client("docs") as own,
        served.client(None, rights=frozenset(Right)) as operator,
    ):
        for operation in sorted(described, key=lambda route: route.method, reverse=True):
            if operation.is_stream:
                continue
            of_operators = operation.right == Right.OPERATE
            request = example_request(operation)
            request["url"] = served.url + request["url"]
            response = await (operator if of_operators else own).request(**request)
            check_response(document, operation, response)
            allowed = {404, 409} if "{" in operation.path or of_operators else set()
            assert response.is_success or response.status_code in allowed, response.text


async def test_json_of_another_media_type_is_refused_with_the_header_to_send(
    served: Gateway,
) -> None:
    """`curl -d` sends the media type of a form, and other programs none."""
    document = await document_of(served)
    paths = set()
    async with served.client(None, rights=frozenset(Right)) as client:
        for operation in operations(document):
            taken = operation.description.get("requestBody", {}).get("content", {})
            if set(taken) != {"application/json"}:
                continue
            paths.add(operation.path)
            request = example_request(operation)
            request["url"] = served.url + request["url"]
            for media_type in ("application/x-www-form-urlencoded", ""):
                request["headers"]["Content-Type"] = media_type
                response = await client.request(**request)
                check_response(document, operation, response)
                assert response.status_code == 415, (operation.name, response.text)
                assert "415" in operation.description["responses"]
                assert "Content-Type" in response.json()["detail"]
                assert "`Content-Type: application/json`" in response.json()["remedy"]
    assert len(paths) >= 8


async def test_a_route_needs_the_right_that_the_document_names(served: Gateway) -> None:
    """Keys of all other rights get 403, and requests without a key 401."""
    document = await document_of(served)
    for operation in operations(document):
        if operation.is_open:
            continue
        request = example_request(operation)
        request["url"] = served.url + request["url"]
        every = frozenset({Right.ASK, Right.READ, Right.PUBLISH})
        others = every - {Right(operation.right)}
        async with httpx2.AsyncClient(timeout=60) as client:
            assert (await client.request(**request)).status_code == 401
        async with served.client("docs", rights=others) as client:
            response = await client.request(**request)
            assert response.status_code == 403, (operation.name, response.text)


def _content(arguments: dict[str, Any]) -> bytes | None:
    """Body of a generated request."""
    if "json" in arguments:
        return json.dumps(arguments["json"]).encode()
    body = arguments.get("data")
    return body.encode(errors="replace") if isinstance(body, str) else body


@pytest.mark.timeout(180)
async def test_no_generated_request_breaks_the_gateway(served: Gateway) -> None:
    """Valid and invalid data for every route, with every right and with none."""
    # not at the top: each test process collects every module, and only one of them runs this
    import schemathesis
    from schemathesis.core.result import Ok
    from schemathesis.generation import GenerationMode

    document = await document_of(served)
    described = {operation.name: operation for operation in operations(document)}
    schema = schemathesis.openapi.from_dict(document)
    keys = {
        "every right": await served.key("docs"),
        "operator": await served.key(None, rights=frozenset(Right)),
    }
    statuses: Counter[int] = Counter()

    def send_all() -> None:
        with httpx2.Client(base_url=served.url, timeout=60) as client:
            for result in schema.get_all_operations():
                assert isinstance(result, Ok), result
                generated = result.ok()
                operation = described[f"{generated.method.upper()} {generated.path}"]
                if operation.is_stream or operation.path.endswith(_STARTS_PROCESSES):
                    continue
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    own = "operator" if operation.right == Right.OPERATE else "every right"
                    send_generated(client, generated, operation, mode, keys[own])

    def send_generated(
        client: httpx2.Client,
        generated: Any,
        operation: Operation,
        mode: GenerationMode,
        key: str,
    ) -> None:
        @seed(_SEED)
        @settings(
            max_examples=_REQUESTS,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(case=generated.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            arguments = case.as_transport_kwargs(base_url=served.url)
            headers = httpx2.Headers(
                [
                    (name.encode("latin-1", "replace"), text.encode("latin-1", "replace"))
                    for name, text in (arguments.get("headers") or {}).items()
                ]
            )
            headers.pop("Authorization", None)
            headers.pop("Prefer", None)  # the gateway would wait
            if "json" in arguments:
                headers.setdefault("Content-Type", "application/json")
            for authorization in ({"Authorization": f"Bearer {key}"}, dict[str, str]()):
                sent = httpx2.Request(
                    arguments["method"],
                    arguments["url"],
                    params=arguments.get("params"),
                    headers=httpx2.Headers([*headers.multi_items(), *authorization.items()]),
                    content=_content(arguments),
                )
                try:
                    response = client.send(sent)
                except httpx2.LocalProtocolError:
                    return  # the client can't send such a header
                statuses[response.status_code] += 1
                check_response(document, operation, response)

        with suppress(Unsatisfiable):  # nothing about the route can be invalid
            send()

    await asyncio.to_thread(send_all)
    assert statuses.total() > 500
    assert statuses[200] > 20
