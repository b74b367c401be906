"""Documents over HTTP: publish, ask, list, read, move and delete."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from typing import Any

import httpx2

from tests.support.gateways import Gateway
from tests.support.waiting import eventually

_REED = "Herons nest in March, high in the reed, and fish in shallow water.\n" * 9
_WOOD = "Owls hunt at night, and sleep in old trees in the day.\n" * 9
HERONS = f"# Herons\n\n{_REED}\n# Owls\n\n{_WOOD}"
OWLS = HERONS.splitlines().index("# Owls") + 1
WAIT = {"Prefer": "wait=30"}
JSON = {"Content-Type": "application/json"}


async def put(
    client: httpx2.AsyncClient, uri: str, content: str = HERONS, **parameters: Any
) -> dict[str, Any]:
    """Publish a document, and return the response after its outcome."""
    response = await client.put(
        "document", params={"uri": uri, **parameters}, content=content.encode(), headers=WAIT
    )
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def uris_of(client: httpx2.AsyncClient, text: str, **fields: Any) -> list[str]:
    """Ask a question, and return the uris of the results."""
    response = await client.post("ask", json={"text": text, **fields})
    assert response.status_code == 200, response.text
    return [result["citation"]["uri"] for result in response.json()["results"]]


async def test_a_published_document_is_answered_listed_and_read(
    client: httpx2.AsyncClient,
) -> None:
    published = await put(
        client, "birds/herons.md", title="Birds", collection="field", **{"meta.year": "2026"}
    )
    assert (published["outcome"], published["chunks_added"]) == ("indexed", 2)
    answer = await client.post(
        "ask", json={"text": "herons", "mode": "keyword", "min_event": published["token"]}
    )
    first = answer.json()["results"][0]
    assert (first["citation"]["uri"], first["citation"]["start_line"]) == ("birds/herons.md", 1)
    assert answer.headers["headrace-stale"] == "?0"
    assert "search;dur=" in answer.headers["server-timing"]

    listed = (await client.get("documents", params={"count": "true"})).json()
    document = listed["items"][0]
    assert (listed["total"], listed["next"]) == (1, None)
    assert (document["uri"], document["title"], document["collections"], document["metadata"]) == (
        "birds/herons.md",
        "Birds",
        ["field"],
        {"year": "2026"},
    )
    shown = (await client.get("document", params={"uri": "birds/herons.md"})).json()
    assert shown == document

    text = await client.get("text", params={"uri": "birds/herons.md"})
    assert text.text == HERONS
    digest = hashlib.sha256(HERONS.encode()).hexdigest()
    assert text.headers["etag"] == f'"{digest}"'
    cached = await client.get(
        "text", params={"uri": "birds/herons.md"}, headers={"If-None-Match": f'"{digest}"'}
    )
    assert (cached.status_code, cached.content) == (304, b"")
    lines = await client.get("text", params={"uri": "birds/herons.md", "lines": f"{OWLS}-{OWLS}"})
    total = len(HERONS.splitlines())
    assert lines.text == "# Owls"
    assert lines.headers["content-range"] == f"lines {OWLS}-{OWLS}/{total}"
    behind = {"uri": "birds/herons.md", "lines": f"{total + 1}-{total + 9}"}
    refused = await client.get("text", params=behind)
    assert (refused.status_code, refused.json()["code"]) == (404, "NotFound")
    assert f"its last line is {total}" in refused.json()["detail"]
    reversed_lines = {"uri": "birds/herons.md", "lines": "3-2"}
    assert (await client.get("text", params=reversed_lines)).status_code == 422

    chunks = (await client.get("chunks", params={"uri": "birds/herons.md", "limit": 1})).json()
    assert chunks["items"][0]["heading_path"] == ["Herons"]
    rest = await client.get("chunks", params={"uri": "birds/herons.md", "after": chunks["next"]})
    assert [chunk["heading_path"] for chunk in rest.json()["items"]] == [["Owls"]]
    collections = (await client.get("collections")).json()["items"]
    assert collections == [{"name": "field", "documents": 1}]


async def test_a_question_in_the_address_is_the_same_question(client: httpx2.AsyncClient) -> None:
    await put(client, "birds/herons.md")
    await put(client, "notes.txt", "Herons were seen.")
    fields = {"text": "herons", "mode": "keyword", "filters": {"uri_prefix": "birds/"}}
    posted = (await client.post("ask", json=fields)).json()
    parameters = {"q": "herons", "mode": "keyword", "under": "birds/"}
    line = (await client.get("ask", params=parameters)).json()
    assert [result["citation"] for result in line["results"]] == [
        result["citation"] for result in posted["results"]
    ]
    assert {result["citation"]["uri"] for result in line["results"]} == {"birds/herons.md"}
    for name, value, remaining in (("path", "!birds/", 1), ("lang", "py", 0), ("symbol", "x", 0)):
        line = (await client.get("ask", params={"q": "herons", name: value})).json()
        assert len(line["results"]) == remaining, name
    wrong = await client.get("ask", params={"q": "herons", "lang": "pyhton"})
    assert wrong.status_code == 422
    assert "similar: python" in wrong.json()["detail"]
    for text, token, problem in (
        (" ", None, "/text: must not be empty"),
        ("herons", "yesterday", "/min_event: must be the token of a change"),
    ):
        wrong = await client.post("ask", json={"text": text, "min_event": token})
        assert wrong.status_code == 422
        assert wrong.json()["detail"].startswith(problem)


async def test_a_place_takes_the_place_of_a_question(client: httpx2.AsyncClient) -> None:
    """Results are like the chunk there, without it; a question is a text or a place."""
    await put(client, "birds/herons.md")
    await put(client, "notes.txt", "Herons nest in March.")
    for response in (
        await client.post("ask", json={"like": {"uri": "notes.txt", "line": 1}, "mode": "keyword"}),
        await client.get("ask", params={"like": "notes.txt:1", "mode": "keyword"}),
    ):
        uris = {result["citation"]["uri"] for result in response.json()["results"]}
        assert uris == {"birds/herons.md"}
    for parameters in ({}, {"q": "herons", "like": "notes.txt:1"}):
        assert await wrong_parameter(client, **parameters) == "q"
    for place in ("absent.txt:1", "notes.txt:2"):
        assert (await client.get("ask", params={"like": place})).status_code == 404


async def wrong_parameter(client: httpx2.AsyncClient, **parameters: str) -> str:
    """Ask by the address, and return the only parameter that the problem names."""
    response = await client.get("ask", params=parameters)
    assert response.status_code == 422, response.text
    [error] = response.json()["errors"]
    name: str = error["parameter"]
    assert error["pointer"] == f"?{name}"
    return name


async def test_a_problem_of_an_address_names_the_parameter(client: httpx2.AsyncClient) -> None:
    """It is not the field that a question in a body has."""
    for name, value in (("limit", "0"), ("path", ""), ("under", "x" * 5000), ("where", "(")):
        assert await wrong_parameter(client, q="herons", **{name: value}) == name
    assert await wrong_parameter(client, q=" ") == "q"
    assert await wrong_parameter(client, q="herons", kind="novel") == "kind"


async def test_a_problem_of_a_document_names_the_parameter(client: httpx2.AsyncClient) -> None:
    """It is not the field that a change in an event has."""
    for name, value, named in (
        ("uri", "", "uri"), ("title", "x" * 513, "title"), ("collection", "*", "collection"),
        ("meta.note", "x" * 2049, "meta.note"), ("meta.", "x", "meta."),
    ):  # fmt: skip
        response = await client.put("document", params={"uri": "a.md", name: value}, content=b"x")
        assert (response.status_code, response.json()["code"]) == (422, "UsageError")
        [error] = response.json()["errors"]
        assert (error["parameter"], error["pointer"]) == (named, f"?{named}")


async def test_texts_that_postgres_cannot_hold_are_refused(client: httpx2.AsyncClient) -> None:
    """No document, source or batch has such a name. NUL was an internal error."""
    nul = "a\0"
    for path, name in (
        ("document", "uri"), ("text", "uri"), ("chunks", "uri"), ("changes", "uri"),
        ("documents", "prefix"), ("documents", "collection"), ("documents", "source"),
    ):  # fmt: skip
        response = await client.get(path, params={name: nul})
        assert response.status_code == 422, (path, name, response.text)
        assert response.json()["errors"] == [
            {"parameter": name, "pointer": f"?{name}", "detail": "must not contain NUL"}
        ]
    assert (await client.get("batch/a%00")).json()["errors"][0]["parameter"] == "batch"
    for uri in (nul, "\ud800"):
        body = json.dumps({"old_uri": uri, "uri": "b.md"})
        moved = await client.post("./document:move", content=body, headers=JSON)
        assert (moved.status_code, moved.json()["errors"][0]["pointer"]) == (422, "/old_uri")


async def test_the_context_alone_is_sent_as_markdown(client: httpx2.AsyncClient) -> None:
    await put(client, "birds/herons.md")
    response = await client.post(
        "ask", json={"text": "when do herons nest"}, headers={"Accept": "text/markdown"}
    )
    assert response.headers["content-type"].startswith("text/markdown")
    assert "Herons nest in March" in response.text


async def test_questions_of_a_batch_are_answered_in_order_with_problems_among_them(
    client: httpx2.AsyncClient,
) -> None:
    await put(client, "birds/herons.md")
    questions = [
        {"text": "herons", "mode": "keyword"},
        {"text": "herons", "vectors": True},
        {"text": "owls", "mode": "keyword"},
    ]
    answers = (await client.post("./ask:batch", json={"questions": questions})).json()["answers"]
    assert [answer["results"][0]["citation"]["heading_path"] for answer in answers[::2]] == [
        ["Herons"],
        ["Owls"],
    ]
    assert (answers[1]["code"], answers[1]["status"]) == ("UsageError", 422)


async def test_a_repeated_request_is_one_event(client: httpx2.AsyncClient) -> None:
    request: dict[str, Any] = {
        "params": {"uri": "a.md"},
        "content": b"Herons.",
        "headers": {"Idempotency-Key": "1"},
    }
    first = await client.put("document", **request)
    again = await client.put("document", **request)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["token"] == again.json()["token"]
    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)


async def test_a_moved_document_keeps_its_vectors(client: httpx2.AsyncClient) -> None:
    await put(client, "old.md", title="Birds", collection="field")
    response = await client.post(
        "./document:move", json={"old_uri": "old.md", "uri": "new.md"}, headers=WAIT
    )
    moved = response.json()
    assert (moved["outcome"], moved["chunks_added"], moved["tokens_embedded"]) == ("indexed", 2, 0)
    assert (await client.get("document", params={"uri": "old.md"})).status_code == 404
    document = (await client.get("document", params={"uri": "new.md"})).json()
    assert (document["title"], document["collections"]) == ("Birds", ["field"])
    missing = {"old_uri": "none.md", "uri": "new.md"}
    assert (await client.post("./document:move", json=missing)).status_code == 404


async def test_a_deleted_document_is_no_longer_found(client: httpx2.AsyncClient) -> None:
    await put(client, "a.md")
    response = await client.delete("document", params={"uri": "a.md"}, headers=WAIT)
    assert (response.json()["outcome"], response.json()["chunks_removed"]) == ("indexed", 2)
    assert await uris_of(client, "herons") == []
    assert (await client.get("document", params={"uri": "a.md"})).status_code == 404


async def test_events_come_alone_in_a_batch_by_line_and_in_headers(
    client: httpx2.AsyncClient,
) -> None:
    def event(number: int) -> dict[str, Any]:
        data = {"uri": f"{number}.md", "content": f"Heron number {number}."}
        return {"specversion": "1.0", "id": f"e{number}", "source": "test", "data": data}

    async def send(content: bytes, media_type: str, **headers: str) -> list[str]:
        response = await client.post(
            "changes", content=content, headers={"Content-Type": media_type, **headers}
        )
        assert response.status_code == 202, response.text
        return [receipt["event_id"] for receipt in response.json()["receipts"]]

    assert await send(json.dumps(event(1)).encode(), "application/cloudevents+json") == ["e1"]
    batch = json.dumps([event(2), event(3)]).encode()
    assert await send(batch, "application/cloudevents-batch+json; charset=utf-8") == ["e2", "e3"]
    lines = "\n".join(json.dumps(event(number)) for number in (4, 5)) + "\n"
    assert await send(lines.encode(), "application/x-ndjson") == ["e4", "e5"]
    binary = {"ce-specversion": "1.0", "ce-source": "test", "ce-type": "document.changed"}
    for number, media_type in ((6, "application/vnd.birds+json"), (7, "application/json")):
        data = json.dumps(event(number)["data"]).encode()
        headers = binary | {"ce-id": f"e{number}"}
        assert await send(data, media_type, **headers) == [f"e{number}"]

    async def are_listed() -> bool:
        uris = {item["uri"] for item in (await client.get("documents")).json()["items"]}
        return uris == {f"{number}.md" for number in range(1, 8)}

    await eventually(are_listed, "the document of each event is listed")


async def test_a_wrong_event_of_a_batch_publishes_none(client: httpx2.AsyncClient) -> None:
    events = [{"data": {"uri": "a.md", "content": "Herons."}}, {"data": {"uri": "b.md"}}]
    response = await client.post("changes", json=events)
    assert (response.status_code, response.json()["code"]) == (422, "MalformedEvent")
    assert response.json()["detail"].startswith("event 1: ")
    await put(client, "last.md")
    listed = (await client.get("documents")).json()["items"]
    assert [item["uri"] for item in listed] == ["last.md"]


async def test_a_body_that_was_damaged_is_refused(client: httpx2.AsyncClient) -> None:
    digest = base64.b64encode(hashlib.sha256(b"Herons.").digest()).decode()
    headers = {"Content-Digest": f"sha-256=:{digest}:"}
    parameters = {"uri": "a.md"}
    good = await client.put("document", params=parameters, content=b"Herons.", headers=headers)
    bad = await client.put("document", params=parameters, content=b"Hexons.", headers=headers)
    assert (good.status_code, bad.status_code) == (202, 422)
    headers = {"Content-Digest": f"sha-256=:A{'=' * 43}:"}  # 44 characters, but not base64
    bad = await client.put("document", params=parameters, content=b"Herons.", headers=headers)
    assert (bad.status_code, bad.json()["remedy"]) == (422, "send it as `sha-256=:BASE64:`")
    binary = await client.put("document", params=parameters, content=b"\xff\xfe\x00")
    assert (binary.status_code, binary.json()["code"]) == (422, "UnsupportedContent")


async def test_a_packed_document_is_published_unpacked(client: httpx2.AsyncClient) -> None:
    response = await client.put(
        "document",
        params={"uri": "a.md"},
        content=gzip.compress(HERONS.encode()),
        headers={"Content-Encoding": "gzip", **WAIT},
    )
    assert response.json()["chunks_added"] == 2
    assert (await client.get("text", params={"uri": "a.md"})).text == HERONS


async def test_a_document_over_the_inline_limit_goes_by_reference(
    client: httpx2.AsyncClient,
) -> None:
    content = "".join(f"Heron number {number} nests in March.\n\n" for number in range(12_000))
    assert len(content) > 256 * 2**10
    await put(client, "big.txt", content)
    assert (await client.get("text", params={"uri": "big.txt"})).text == content


async def test_documents_are_listed_page_by_page(client: httpx2.AsyncClient) -> None:
    for number in range(5):
        await put(client, f"{number}.md")
    seen: list[str] = []
    after: str | None = None
    while True:
        parameters = {"limit": "2", **({"after": after} if after else {})}
        page = (await client.get("documents", params=parameters)).json()
        seen += [item["uri"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == [f"{number}.md" for number in range(5)]


async def test_an_agents_documents_are_private_to_its_keys(served: Gateway) -> None:
    async with served.client(agent="ana") as ana, served.client(agent="bo") as bo:
        await put(ana, "secret.md", "Ana saw herons.", private="true")
        await put(ana, "shared.md", "All saw herons.")
        assert sorted(await uris_of(ana, "herons")) == ["secret.md", "shared.md"]
        assert await uris_of(bo, "herons") == ["shared.md"]
        for path in ("document", "text", "chunks"):
            assert (await bo.get(path, params={"uri": "secret.md"})).status_code == 404
        assert [item["uri"] for item in (await bo.get("documents")).json()["items"]] == [
            "shared.md"
        ]
        data = {"uri": "x.md", "content": "Herons.", "agent": "ana"}
        forged = await bo.post("changes", json=[{"data": data}])
        assert (forged.status_code, forged.json()["code"]) == (403, "Forbidden")
