"""The gateway over a socket: probes of every route and tool, from a project at another one's."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from events.client.publisher import Receipt
from events.models import DocumentChange, DocumentChanged
from gateway.auth.callers import Right
from gateway.http.openapi import Operation, operations
from runtime.embedded import EmbeddedPostgres
from store.generations.catalog import Projects
from store.keys.api_keys import ApiKey, ApiKeyRegister
from tests.chaos.seeds import size
from tests.support.databases import fresh_database
from tests.support.gateways import ALL_RIGHTS, Gateway, gateway
from tests.support.hostile_values import CONTROLS, INJECTIONS, VALUES
from tests.support.hostile_worker import Suspect, hostile_worker
from tests.support.running import PATIENCE
from tests.support.streams import emptied
from tests.support.tally import Record
from tests.support.waiting import eventually
from tests.support.writes import RECIPE, opened

MINE, THEIRS = "alpha", "beta"
HANDLES = ("zephyrbeta", "zephyrann")
SECRETS = ("quillbeta", "quillann")
"""Words beside the handles in the other project's and the other agent's documents. No probe
contains them, so no response may, not even as an echo."""
OWN = "quillmine"

TRIES = size(1, thorough=2)
"""Factor of the random values of each parameter, field and argument."""
_AT_ONCE = 12
_SEED = 11
_MCP_HEADERS = {"Accept": "application/json, text/event-stream"}
_SSE = {"Accept": "text/event-stream"}
_FROM_THE_BEGINNING = {"Last-Event-ID": "0:0-0"}


@dataclass(frozen=True)
class Probe:
    """One request. ``key`` names its API key; ``body`` is bytes, or an object sent as JSON."""

    kind: str
    method: str
    path: str
    key: str = "mine"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes | None:
        """Bytes of the body."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body).encode()

    @property
    def sent_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers as bytes, so that the client does not check them."""
        pairs = dict(self.headers)
        if self.body is not None and not any(name.lower() == "content-type" for name in pairs):
            pairs["Content-Type"] = "application/json"
        return [(name.encode(), text.encode("latin-1", "replace")) for name, text in pairs.items()]


@dataclass
class Field:
    """A gateway with two projects, and keys for the one that probes come from."""

    gateway: Gateway
    suspect: Suspect
    redis: Redis
    keys: dict[str, str]
    token: str
    private_token: str
    shown: int = 0

    async def send(self, client: httpx2.AsyncClient, probe: Probe) -> str:
        """Send a probe, check the response, and classify it."""
        headers = list(probe.sent_headers)
        key = self.keys.get(probe.key, probe.key)
        if key:
            headers.append((b"Authorization", b"Bearer " + key.encode("latin-1", "replace")))
        try:
            response = await client.request(
                probe.method,
                self.gateway.url + probe.path,
                params=_query(probe.parameters),
                content=probe.content,
                headers=headers,
            )
        except (httpx2.InvalidURL, httpx2.LocalProtocolError):
            return "not sendable"
        return self.check(probe, response)

    def check(self, probe: Probe, response: httpx2.Response) -> str:
        """Check that a response shows nothing of others, and describes its error."""
        whole = str(response.headers) + response.text
        assert not any(secret in whole for secret in SECRETS), (probe, whole)
        assert response.status_code < 500, (probe, response.text)
        assert response.headers["x-content-type-options"] == "nosniff", probe
        self.shown += OWN in response.text
        if response.status_code < 400 or probe.method == "HEAD":
            if probe.path.startswith("/mcp") and response.text:
                return "refused by a tool" if _tool_error(probe, response) else "of mine only"
            return "of mine only"
        if probe.path.startswith("/mcp") and "jsonrpc" in response.text:
            assert response.json()["error"]["message"], probe
        elif "html" in response.headers["content-type"] or probe.path.startswith("/static/"):
            assert "Traceback" not in response.text
        else:
            assert response.headers["content-type"] == "application/problem+json", (
                probe,
                response.text,
            )
            problem = response.json()
            assert problem["status"] == response.status_code, probe
            assert problem["code"], probe
            assert problem["detail"], probe
            assert problem["remedy"], probe
        return f"refused with {response.status_code}"


def _query(parameters: Mapping[str, Any]) -> Any:
    pairs: list[tuple[str, str]] = []
    for name, value in parameters.items():
        items = value if isinstance(value, list) else [value]
        pairs.extend((name, _text(item)) for item in items)
    return pairs or None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) > 10**300:
        return "9" * 400  # Python refuses to print longer ones
    return str(value).encode(errors="replace").decode()


def _tool_error(probe: Probe, response: httpx2.Response) -> bool:
    answer = response.json()
    if "error" in answer:
        assert answer["error"]["message"], probe
        assert "InternalError" not in str(answer["error"].get("data")), (probe, answer)
        return True
    error = answer["result"].get("structuredContent", {}).get("error")
    if error is None:
        return False
    assert error["code"] != "InternalError", (probe, error)
    assert error["detail"], probe
    assert error.get("remedy"), (probe, error)
    return True


def document(project: str, number: int, words: str, **fields: Any) -> DocumentChanged:
    content = f"# Weirs\n\nThe {words} weir holds the water of the mill.\n"
    data = {"metadata": {"team": words}, "title": f"About {words}", "collections": ("common",)}
    change = DocumentChange(
        project=project, uri=f"docs/{number}.md", content=content, **{**data, **fields}
    )
    return DocumentChanged(data=change)


@pytest.fixture(scope="module")
async def deployed(
    redis_server: str,
    postgres_server: EmbeddedPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Field]:
    """A worker, a gateway, and documents of two projects and of an agent."""
    home = tmp_path_factory.mktemp("probed")
    changes = [
        *(document(MINE, number, OWN) for number in range(5)),
        *(document(THEIRS, number, f"{HANDLES[0]} {SECRETS[0]}") for number in range(5)),
        *(document(MINE, n, f"{HANDLES[1]} {SECRETS[1]}", agent="ann") for n in range(5, 10)),
    ]
    await emptied(redis_server)
    settings = {"home": home, "gateway": {"streams": 256}}
    async with (
        fresh_database(postgres_server) as database,
        hostile_worker(redis_server, database, home) as suspect,
        gateway(redis_server, database, operator=True, **settings) as served,
    ):
        receipts: list[Receipt] = await suspect.client.publish_many(changes)
        await suspect.client.wait(receipts, PATIENCE, vectors=True)
        keys = {
            "mine": await served.key(MINE, rights=ALL_RIGHTS),
            "bob": await served.key(MINE, rights=ALL_RIGHTS, agent="bob"),
            "ann": await served.key(MINE, rights=ALL_RIGHTS, agent="ann"),
            "theirs": await served.key(THEIRS, rights=ALL_RIGHTS),
            "operator": await served.key(None, rights=frozenset(Right)),
            "retired": await served.key(MINE, rights=ALL_RIGHTS),
        }
        retired = ApiKey.parse(keys["retired"])
        assert retired is not None
        async with opened(database.operator_url) as operator:
            await ApiKeyRegister(operator, Projects(operator, RECIPE)).retire(retired.id)
        yield Field(served, suspect, suspect.redis, keys, receipts[5].token, receipts[10].token)


@pytest.fixture
async def probed(deployed: Field) -> AsyncIterator[Field]:
    """The deployment, which the tests of this module share: what one leaves harms no other."""
    deployed.shown = 0
    yield deployed
    await forget_failures(deployed)
    await eventually(lambda: not deployed.suspect.defects(), "no defects")


async def forget_failures(probed: Field) -> None:
    """Forget requests with wrong keys, so that valid keys can be looked up again."""
    async for key in probed.redis.scan_iter("*failures*"):
        await probed.redis.delete(key)


@asynccontextmanager
async def no_change_of_theirs(probed: Field) -> AsyncIterator[None]:
    """Check that the other project's and the other agent's documents stay as they are."""

    async def state() -> list[str]:
        async with httpx2.AsyncClient(timeout=60) as client:
            texts = []
            for key, project in (("theirs", THEIRS), ("ann", MINE)):
                headers = {"Authorization": f"Bearer {probed.keys[key]}"}
                url = f"{probed.gateway.url}/v1/projects/{project}/documents"
                for prefix in ("docs/5", "docs/6", "docs/7", "docs/8", "docs/9", "docs/0"):
                    listed = await client.get(url, headers=headers, params={"prefix": prefix})
                    items = [
                        item
                        for item in listed.json()["items"]
                        if any(secret in str(item) for secret in SECRETS)
                    ]
                    texts.append(json.dumps(items))
        assert any(secret in "".join(texts) for secret in SECRETS)
        return texts

    before = await state()
    yield
    assert await state() == before


async def run(probed: Field, probes: Iterable[Probe]) -> Counter[str]:
    """Send probes, a few at a time, and count their results."""
    waiting, results = iter(probes), Counter[str]()

    async def send_some() -> None:
        async with httpx2.AsyncClient(timeout=60) as client:
            for probe in waiting:
                results[await probed.send(client, probe)] += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(send_some())
    return results


async def routes(probed: Field) -> list[Operation]:
    async with httpx2.AsyncClient(timeout=60) as client:
        document = (await client.get(f"{probed.gateway.url}/openapi.json")).json()
    return [route for route in operations(document) if not route.is_stream]


def example(operation: Operation, kind: str, project: str = MINE) -> Probe:
    """Build the example of a route for a project."""
    values = {**operation.example, "project": project}
    places = {parameter["name"]: parameter["in"] for parameter in operation.parameters}
    path = operation.path
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
    media = operation.body
    headers = {n: str(v) for n, v in values.items() if places.get(n) == "header"}
    headers.pop("prefer", None)
    headers.pop("idempotency-key", None)
    if media is not None:
        headers["Content-Type"] = media[0]
    body = None if media is None else media[1]
    return Probe(
        kind,
        operation.method,
        path,
        parameters={n: v for n, v in values.items() if places.get(n) == "query"},
        body=body.encode() if isinstance(body, str) else body,
        headers=headers,
    )


def _is_of_operators(operation: Operation) -> bool:
    return operation.right == "operate"


async def test_no_route_shows_or_changes_another_project(probed: Field, record: Record) -> None:
    """Every route, by a key of another project, under many spellings of the project's name."""
    spellings = (
        *(THEIRS, "BETA", "beta ", "beta%00", "%62eta", "alpha%2F..%2Fbeta", "..%2Fbeta"),
        *("beta;alpha", "beta,alpha", "*", "%2A", "null", "beta%2Fdocuments", "alpha%09beta"),
    )
    probes = []
    for operation in await routes(probed):
        if operation.is_open:
            continue
        keys = ("mine", "bob")
        if "{project}" in operation.path:
            probe = example(operation, "path", "PROJECT")
            for key, spelling in zip(cycle(keys), spellings, strict=False):
                probes.append(replace(probe, key=key, path=probe.path.replace("PROJECT", spelling)))
        elif not operation.path.startswith("/rag"):
            probes += [replace(example(operation, "path"), key=key) for key in keys]
    async with no_change_of_theirs(probed):
        results = await run(probed, probes)
    assert len(probes) > 300
    refusals = {f"refused with {status}" for status in (403, 404, 422)}
    assert set(results) <= {*refusals, "of mine only"}, results
    assert results["of mine only"] < 10, results  # `GET /v1/projects` with a key of mine
    record("requests for another project", results)


def _private(probed: Field) -> Iterator[Probe]:
    base = f"/v1/projects/{MINE}"
    for key in ("mine", "bob"):
        for number in range(5, 10):
            uri = {"uri": f"docs/{number}.md"}
            for path in ("document", "text", "chunks"):
                yield Probe("agent", "GET", f"{base}/{path}", key, uri)
                yield Probe("agent", "GET", f"{base}/{path}", key, {**uri, "agent": "ann"})
            yield Probe("agent", "GET", f"{base}/changes", key, uri)
            yield Probe("agent", "DELETE", f"{base}/document", key, {**uri, "agent": "ann"})
            move = {"old_uri": uri["uri"], "uri": "docs/0.md"}
            yield Probe("agent", "POST", f"{base}/document:move", key, body=move)
            event = {"uri": uri["uri"], "agent": "ann", "content": "mine"}
            yield Probe("agent", "POST", f"{base}/changes", key, body=[{"data": event}])
        for mode in ("hybrid", "keyword", "vector"):
            for text in (*HANDLES, "zephyran", "weir ann", "agent:ann"):
                question = {"text": text, "mode": mode, "limit": 100, "explain": True}
                yield Probe("agent", "POST", f"{base}/ask", key, body=question)
                yield Probe("agent", "POST", f"{base}/ask", key, body={**question, "agent": "ann"})
                context = {**question, "context_tokens": 4000}
                yield Probe("agent", "POST", f"{base}/ask", key, body=context)
                yield Probe(
                    *("agent", "GET", f"{base}/ask", key),
                    parameters={"q": text, "mode": mode, "limit": 100},
                    headers={"Accept": "text/markdown", "Agent": "ann", "X-Agent": "ann"},
                )
                query = {"query": text, "top_k": 50}
                yield Probe("agent", "POST", "/rag/retrieve", key, body=query)
        for token in (probed.token, probed.private_token):
            change = {"token": token}
            headers = {"Prefer": "wait=1"}
            yield Probe("agent", "GET", f"{base}/change", key, change)
            yield Probe("agent", "GET", f"{base}/change", key, change, headers=headers)
        yield Probe("agent", "GET", f"{base}/documents", key, {"limit": 200, "count": "true"})
        yield Probe("agent", "GET", f"{base}/collections", key)
        yield Probe("agent", "GET", "/rag/sources", key, {"limit": 200})


async def test_no_private_document_is_shown_to_others(probed: Field, record: Record) -> None:
    """Keys without an agent, or of another one, see nothing of the agent ann."""
    probes = list(_private(probed))
    async with no_change_of_theirs(probed):
        results = await run(probed, probes)
    record("requests for private documents", results)
    async with httpx2.AsyncClient(timeout=60) as client:
        for key in ("mine", "bob"):
            headers = {"Authorization": f"Bearer {probed.keys[key]}"}
            url = f"{probed.gateway.url}/v1/projects/{MINE}/change"
            params = {"token": probed.token}
            assert (await client.get(url, headers=headers, params=params)).status_code == 404
            params = {"token": probed.private_token}  # its holder sees the state alone
            change = (await client.get(url, headers=headers, params=params)).json()
            assert (change["state"], change["uri"], change["agent"]) == ("indexed", None, None)
    assert probed.shown > 20, "own text must be shown, or the probes prove nothing"


def _tricks() -> Iterator[Probe]:
    base = f"/v1/projects/{MINE}"
    paths = (
        *("/v1/projects/alpha/../beta/documents", "/v1/projects/alpha/%2e%2e/beta/documents"),
        *("/v1//projects/beta/documents", "//v1/projects/beta/documents", "/v1/projects//beta"),
        *("/v1/projects/beta/documents/", "/v1/projects/beta%2Fdocuments", "/v1/projects/beta."),
        *("/v1/projects/alpha%2F..%2Fbeta/documents", "/v1/projects/beta/documents%00"),
        *("/static/../gateway/app.py", "/static/..%2F..%2Fapp.py", "/static/%2e%2e/pages.py"),
        *("/static/....//....//etc/passwd", "/static//etc/passwd", "/static/vendor/../../pages.py"),
        *("/static/%00", "/static/" + "a/" * 500, "/problems/../../etc/passwd", "/problems/%00"),
        *("/%2e%2e/%2e%2e/etc/passwd", "/.git/config", "/.env", "/v1/projects/alpha;p=beta"),
        *("/mcp/", "/MCP", "/mcp/../v1/projects/beta", "/rag/sources/..%2F..%2F", "/rag/sources/'"),
        *("/v1/projects/" + "x" * 3000, "/" + "%41" * 3000, "/%ff%fe", "/v1/projects/%ff", "/*"),
    )
    for path in paths:
        for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "PATCH", "X"):
            yield Probe("path", method, path)
    headers = (
        *({"X-Forwarded-For": "127.0.0.1"}, {"X-Forwarded-Host": "beta"}, {"Forwarded": "host=x"}),
        *({"X-HTTP-Method-Override": "DELETE"}, {"X-Original-URL": "/v1/projects/beta"}),
        *({"X-Project": THEIRS}, {"Headrace-Project": THEIRS}, {"X-Rewrite-URL": "/v1/status"}),
        *({"Cookie": "__Host-headrace=" + "A" * 43}, {"Cookie": "__Host-headrace=hrs_" + "A" * 43}),
        *({"X-Request-Id": "\x01\x02"}, {"X-Request-Id": "a" * 5000}, {"Accept": "*/*;q=x"}),
        *({"traceparent": "00-" + "0" * 32 + "-x"}, {"traceparent": "ff" * 4000}),
        *({"If-None-Match": "*"}, {"Range": "bytes=0-9"}, {"Expect": "100-continue"}),
        *({"Prefer": "wait=99999999999999999999"}, {"Prefer": "wait=-1"}, {"Prefer": "wait=9999"}),
        *({"Accept": "text/markdown" * 500}, {"Content-Type": "\xff\xfe"}, {"Connection": "Host"}),
        *({"Accept-Encoding": "gzip" * 900}, {"Upgrade": "websocket", "Connection": "Upgrade"}),
        *({"Transfer-Encoding": "gzip, chunked"}, {"Content-Encoding": "br"}, {"Tracestate": "="}),
        *({"A" * 200: "b"}, {"X-Long": "b" * 9000}, {"Sec-Fetch-Site": "cross-site"}),
    )
    for header in headers:
        for path in ("documents", "ask?q=weir", "text?uri=docs/0.md"):
            yield Probe("header", "GET", f"{base}/{path}", headers=header)
            yield Probe("header", "GET", f"/v1/projects/{THEIRS}/{path}", headers=header)
    for number in range(40):
        named = {f"ce-{name}": THEIRS for name in ("type", "project", "source", "subject")}
        body = {"project": THEIRS, "uri": f"docs/{number}.md", "content": "stolen"}
        yield Probe(
            *("header", "POST", f"{base}/changes"),
            body=body,
            headers={**named, "Content-Type": "application/octet-stream"},
        )


def _other_sites(port: str) -> Iterator[Probe]:
    """Requests as a browser sends them for a page of another site."""
    hosts = (
        *("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "localhost:80:80"),
        *("", "localhost@evil.example", "[::1", "[::1]evil", "0.0.0.0:1", "127.1", "2130706433"),
        *(
            "127.0.0.1, evil.example",
            "localhost ",
            "lo\tcalhost",
            "LOCALHOST.",
            "[::ffff:127.0.0.1]",
        ),
    )
    paths = (
        f"/v1/projects/{MINE}/documents",
        "/mcp",
        "/healthz",
        "/",
        "/metrics",
        "/ask",
        "/nothing",
    )
    for host in hosts:
        for path in paths:
            for name in {host, f"{host}:{port}"}:
                yield Probe("site", "GET", path, headers={"Host": name})
    form = b"csrf_token=x&api_key=x&project=beta&q=weir"
    for origin in ("https://evil.example", "null", "http://localhost", f"https://127.0.0.1:{port}"):
        for path in ("/login", "/logout", "/dead-letters/apply", "/generations/change", "/mcp"):
            for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
                headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Content-Type": kind}
                yield Probe("site", "POST", path, "", body=form, headers=headers)


async def test_no_trick_of_path_header_or_site_works(probed: Field, record: Record) -> None:
    """Spellings of paths, headers that proxies set, rebound names and cross-site forms."""
    async with no_change_of_theirs(probed):
        record("tricks of path and header", await run(probed, _tricks()))
        probes = list(_other_sites(probed.gateway.url.rpartition(":")[2]))
        results = await run(probed, probes)
    refusals = {f"refused with {status}" for status in (400, 403, 421)}
    assert set(results) <= {*refusals, "not sendable"}, results
    record("requests of other sites", results)


def _bodies(rng: random.Random, found: list[Operation]) -> Iterator[Probe]:
    texts = (
        *(b"", b"{", b"null", b"[]", b"{}", b'"x"', b"1", b"\xff\xfe", b"\x00", b"[" * 100_000),
        *(b'{"text":' * 30_000, b'{"text": NaN}', b'{"text": 1e999}', b"[" + b"1" * 10_000 + b"]"),
        *(b'{"text": "\\ud800"}', b'{"\\ud800": 1}', b'{"text": "a", "\\ud800": "\\udfff"}'),
        *(
            b'{"text": "a", "text": "b"}',
            b'{"text": "' + b"a" * 2**20 + b'"}',
            b"{" + b" " * 10_000,
        ),
        *(b'[{"data": {"\\ud800": 1}}]', b'[{"data": {"uri": "\\ud800", "content": "x"}}]'),
        *(b'[{"\\ud800": {}}]', b'[{"data": 1}]', b"[1]", b'{"data": {"uri": "a"}}', b"\n\n"),
        *(gzip.compress(b"{}"), b"--x\r\nContent-Disposition: form-data\r\n\r\n"),
    )
    kinds = (
        *("application/json", "text/plain", "application/x-ndjson", "application/cloudevents+json"),
        *("multipart/form-data; boundary=x", "application/json; charset=utf-16", "x", ""),
    )
    for operation in found:
        if operation.body is None:
            continue
        base = example(operation, "body")
        for text in texts:
            kind = rng.choice(kinds[:1] * 4 + kinds)
            headers = {**base.headers, "Content-Type": kind}
            if rng.random() < 0.1:
                headers["Content-Encoding"] = rng.choice(["gzip", "br", "deflate", "gzip, gzip"])
            yield replace(base, body=text, headers=headers)
        bomb = gzip.compress(b" " * 2**25)
        yield replace(base, body=bomb, headers={**base.headers, "Content-Encoding": "gzip"})
        yield replace(base, body=b" " * (3 * 2**20))
    ids = ("\xff", "a" * 129, "\t", "'; --")
    for name in ids:
        yield Probe(
            *("body", "PUT", f"/v1/projects/{MINE}/document"),
            parameters={"uri": "probe.md"},
            body=b"text",
            headers={"Idempotency-Key": name, "Content-Digest": "sha-256=:" + "=" * 44 + ":"},
        )


async def test_no_body_breaks_the_gateway(probed: Field, record: Record) -> None:
    """Malformed, oversized, packed and mislabelled bodies are refused by a problem."""
    rng = random.Random(_SEED)
    found = [one for one in await routes(probed) if not _is_of_operators(one)]
    async with no_change_of_theirs(probed):
        results = await run(probed, list(_bodies(rng, found)))
    record("hostile bodies", results)
    assert results["refused with 422"] > 20


def _hostile(rng: random.Random) -> Any:
    return rng.choice(VALUES) if rng.random() < 0.5 else rng.choice(INJECTIONS)


def _mutated(rng: random.Random, value: Any) -> Any:
    """Replace one part of an example by a hostile value."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = rng.choice([*value, "metadata", "filters", "agent", "min_event"])
        inner = value.get(name, _hostile(rng))
        changed = _mutated(rng, inner) if rng.random() < 0.4 else _hostile(rng)
        return {**value, name: changed}
    if isinstance(value, list) and value:
        return [_mutated(rng, item) for item in value]
    return _hostile(rng)


def _injections(rng: random.Random, found: list[Operation]) -> Iterator[Probe]:
    for operation in found:
        of_operators = _is_of_operators(operation)
        base = example(operation, "injection")
        base = replace(base, key="operator" if of_operators else rng.choice(["mine", "bob"]))
        if of_operators and operation.method != "GET":
            base = replace(base, key="mine")
        names = [p["name"] for p in operation.parameters if p["in"] == "query"]
        for name in names:
            for _ in range(4 * TRIES):
                value = _hostile(rng)
                yield replace(base, parameters={**base.parameters, name: value})
        for name in re.findall(r"{(\w+)}", operation.path):
            for _ in range(3 * TRIES):
                changed = example(operation, "injection", "alpha")
                text = quote(_text(_hostile(rng)), safe="")
                path = operation.path.replace(f"{{{name}}}", text)
                path = re.sub(r"{\w+}", "alpha", path)
                yield replace(changed, key=base.key, path=path)
        if isinstance(base.body, dict | list):
            for _ in range(15 * TRIES):
                yield replace(base, body=_mutated(rng, base.body))


async def test_no_parameter_is_an_instruction(probed: Field, record: Record) -> None:
    """Hostile values in every parameter, path and field of every route."""
    rng = random.Random(_SEED)
    async with no_change_of_theirs(probed):
        results = await run(probed, list(_injections(rng, await routes(probed))))
    assert results.total() > 500
    record("hostile parameters and fields", results)


def _calls(rng: random.Random, probed: Field) -> Iterator[Probe]:
    tools: dict[str, dict[str, Any]] = {
        "search": {"query": HANDLES[0], "limit": 50, "max_tokens": 20_000},
        "read": {"uri": "docs/5.md"},
        "list": {"under": "docs/"},
        "remember": {"uri": "note.md", "content": "a note"},
        "forget": {"uri": "docs/7.md"},
        "status": {"token": probed.token},
    }
    projects: tuple[Any, ...] = (THEIRS, "BETA", "", None, [])
    messages: tuple[Any, ...] = (
        *({}, {"name": THEIRS}, {"uri": "headrace://beta/docs/0.md"}, [], None, "x"),
    )
    for name, arguments in tools.items():
        for key in ("mine", "bob"):
            cases = [
                *(arguments | {"project": project} for project in projects),
                *(arguments | {"agent": "ann"}, arguments | {"private": True}, arguments),
                *(_mutated(rng, arguments) for _ in range(6 * TRIES)),
            ]
            for case in cases:
                yield _call(name, case, key)
    for token in (probed.token, probed.private_token, "", "x", "live:0:1-1"):
        yield _call("status", {"token": token}, "bob")
        yield _call("search", {"query": "weir", "min_event": token}, "bob")
    for method in (
        "tools/call",
        "resources/read",
        "prompts/get",
        "initialize",
        "x",
        "logging/setLevel",
    ):
        for params in messages:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            yield Probe("mcp", "POST", "/mcp", body=message, headers=_MCP_HEADERS)
    yield from _resources(rng, probed)
    bodies = (
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 50_000,
        b'{"jsonrpc": "2.0"}',
        b" " * 2**21,
    )
    for body in bodies:
        for method in ("POST", "GET", "PUT", "DELETE"):
            yield Probe("mcp", method, "/mcp", body=body, headers=_MCP_HEADERS)
    for headers in (
        {"Mcp-Session-Id": "x"},
        {"Mcp-Protocol-Version": "x"},
        {"Accept": "text/html"},
        {"Content-Encoding": "gzip"},
        {"Last-Event-ID": "1"},
    ):
        yield replace(_call("list", {}, "mine"), headers={**_MCP_HEADERS, **headers})


def _resources(rng: random.Random, probed: Field) -> Iterator[Probe]:
    """Resources, completions and prompts of others, and with hostile addresses."""
    template = {"type": "ref/resource", "uri": "headrace://{project}/{+uri}"}
    addresses = (
        *("headrace://alpha/docs/5.md", "headrace://alpha/docs/5.md?start=1&end=3"),
        *("headrace://beta/docs/5.md", "headrace://beta%2Fdocs/5.md", "headrace://BETA/docs/5.md"),
        *("headrace://alpha/../beta/docs/5.md", "headrace://alpha/%2e%2e/beta/docs/5.md"),
        *("headrace://alpha@beta/docs/5.md", "headrace://status?project=beta", "headrace://status"),
        *(
            "headrace://alpha/\ud800",
            "headrace://alpha/a%00b",
            "headrace://\x00/docs/5.md",
            "\ud800",
        ),
        *(f"headrace://alpha/{_text(_hostile(rng))}" for _ in range(15 * TRIES)),
        *(f"headrace://{_text(_hostile(rng))}/docs/5.md" for _ in range(15 * TRIES)),
    )
    for key in ("mine", "bob"):
        for address in addresses:
            yield _message("resources/read", {"uri": address}, key)
        for project in ("alpha", THEIRS, "", "*", None):
            for value in (
                "",
                "docs/",
                "%",
                "\ud800",
                "\x00",
                *(_text(_hostile(rng)) for _ in range(3 * TRIES)),
            ):
                argument = {"name": "uri", "value": value}
                context = {"arguments": {"project": project}} if project is not None else {}
                params = {"ref": template, "argument": argument, "context": context}
                yield _message("completion/complete", params, key)
        for _ in range(5 * TRIES):
            question = {"question": _text(_hostile(rng))}
            params = {"name": "ask_with_sources", "arguments": question}
            yield _message("prompts/get", params, key)


def _call(name: str, arguments: Any, key: str) -> Probe:
    return _message("tools/call", {"name": name, "arguments": arguments}, key)


def _message(method: str, params: Any, key: str) -> Probe:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return Probe("mcp", "POST", "/mcp", key, body=message, headers=_MCP_HEADERS)


async def test_no_tool_shows_or_changes_what_is_theirs(probed: Field, record: Record) -> None:
    """MCP over HTTP: other projects, other agents, hostile arguments and messages."""
    probes = list(_calls(random.Random(_SEED), probed))
    async with no_change_of_theirs(probed):
        results = await run(probed, probes)
    assert probed.shown > 5, "own text must be shown, or the probes prove nothing"
    record("MCP calls and messages", results)


async def test_no_wrong_key_opens_anything(probed: Field, record: Record) -> None:
    """No key, malformed, unknown, mixed and retired ones, on every route."""
    mine, theirs = probed.keys["mine"], probed.keys["theirs"]
    wrong = (
        *("", "hr_", mine[:-1], mine + "A", mine.upper(), f"{mine} {theirs}", "' OR 1=1 --"),
        *(mine[:12] + theirs[12:], "hr_AAAAAAAA_" + "A" * 43, probed.keys["retired"], "\xff"),
    )
    found = [one for one in await routes(probed) if not one.is_open]
    probes = [replace(example(operation, "key"), key=key) for operation in found for key in wrong]
    probes += [replace(_call("list", {}, key), key=key) for key in wrong]
    async with no_change_of_theirs(probed):
        results = await run(probed, probes)
        await forget_failures(probed)
    assert set(results) == {"refused with 401", "refused with 429"}, results
    record("requests with a wrong key", results)


def _streams(project: str) -> Iterator[Probe]:
    """Every route that streams events; ``project`` is as it stands in the path."""
    base = f"/v1/projects/{project}"
    yield Probe("stream", "GET", f"{base}/events")
    yield Probe("stream", "GET", f"{base}/events", headers=_FROM_THE_BEGINNING)
    yield Probe("stream", "GET", f"{base}/events", parameters={"batch": "b", "prefix": "docs/"})
    yield Probe("stream", "POST", f"{base}/ask", body={"text": HANDLES[0]}, headers=_SSE)
    yield Probe("stream", "GET", "/v1/status/events")
    yield Probe("stream", "GET", "/v1/replay/1/events")


def _malformed_streams() -> Iterator[Probe]:
    events = f"/v1/projects/{MINE}/events"
    positions = (
        *(
            "1",
            "0:1",
            "0:1-0;",
            "0:1-0,",
            ",",
            "-1:0-0",
            "0:0-0,0",
            "0:-1-0",
            "1000:0-0",
            "x" * 300,
        ),
        *("0:0-0,' OR 1=1 --", "0:99999999999999999999-0", "headrace:0-0", "$", ">", "+", "\xff"),
    )
    for position in positions:
        yield Probe("stream", "GET", events, headers={"Last-Event-ID": position})
    for batch in ("", "x" * 65, "a\x00b", "*" * 5_000, "' OR '1'='1", "%", "beta,*", *CONTROLS):
        yield Probe("stream", "GET", events, parameters={"batch": batch})
    for question in (
        {},
        {"text": " "},
        {"text": "weir", "limit": 0},
        {"text": "weir", "agent": "ann"},
    ):
        path = f"/v1/projects/{MINE}/ask"
        yield Probe("stream", "POST", path, body=question, headers=_SSE)


async def test_no_stream_of_others_is_opened(probed: Field, record: Record) -> None:
    """Another project's streams, those of operators, and malformed positions and filters."""
    spellings = (THEIRS, "BETA", "beta%00", "%62eta", "alpha%2F..%2Fbeta", "*", "alpha,beta")
    probes = [
        replace(probe, key=key)
        for spelling in spellings
        for probe in _streams(spelling)
        for key in ("mine", "bob")
    ]
    results = await run(probed, probes)
    assert set(results) <= {f"refused with {status}" for status in (403, 404, 422)}, results
    record("event streams of others", results)
    results = await run(probed, _malformed_streams())
    assert set(results) <= {"refused with 422", "not sendable"}, results
    record("malformed event streams", results)
    unknown = Probe("stream", "GET", "/v1/replay/none/events", "operator")
    assert await run(probed, [unknown]) == {"refused with 404": 1}


async def test_no_wrong_key_opens_a_stream(probed: Field, record: Record) -> None:
    mine = probed.keys["mine"]
    wrong = ("", mine[:-1], mine.upper(), "hr_AAAAAAAA_" + "A" * 43, probed.keys["retired"])
    results = await run(
        probed, [replace(probe, key=key) for probe in _streams(MINE) for key in wrong]
    )
    assert set(results) <= {"refused with 401", "refused with 429"}, results
    record("event streams with a wrong key", results)


async def test_a_question_as_a_stream_shows_what_is_mine_only(
    probed: Field, record: Record
) -> None:
    """A failure within the stream is a problem with a remedy."""
    path = f"/v1/projects/{MINE}/ask"
    questions = [
        {"text": text, "mode": mode, "limit": 100, "context_tokens": 4_000}
        for text in (*HANDLES, "weir", "agent:ann", *INJECTIONS)
        for mode in ("hybrid", "keyword", "vector")
    ]
    probes = [
        Probe("stream", "POST", path, key, body=question, headers=_SSE)
        for question in questions
        for key in ("mine", "bob")
    ]
    results = await run(probed, probes)
    assert results["of mine only"] > len(probes) / 2, results
    assert probed.shown > 5, "own text must be shown, or the probes prove nothing"
    record("questions as event streams", results)
    headers = {**_SSE, "Authorization": f"Bearer {probed.keys['mine']}"}
    contradictory = {"text": "weir", "mode": "keyword", "min_similarity": 0.5}
    async with httpx2.AsyncClient(timeout=60) as client:
        response = await client.post(probed.gateway.url + path, json=contradictory, headers=headers)
    [failed] = [block for block in response.text.split("\n\n") if "query.failed" in block]
    problem = json.loads(failed.partition("data: ")[2])
    assert (problem["code"], problem["status"]) == ("UsageError", 422)
    assert problem["remedy"]


@dataclass(frozen=True)
class _Listener:
    """An open stream, and the uri of the last document that it must show."""

    probe: Probe
    marker: str
    blocks: AsyncIterator[str]

    async def read(self) -> str:
        """Read up to the marker; check that every outcome is one that the caller may see."""
        agents = (None, self.probe.key if self.probe.key == "bob" else None)
        async for block in self.blocks:
            assert not any(secret in block for secret in SECRETS), (self.probe, block)
            if not block.startswith("event: document."):
                continue
            outcome = json.loads(block.partition("data: ")[2])
            assert outcome["project"] == MINE, self.probe
            assert outcome["agent"] in agents, self.probe
            if outcome["uri"] == self.marker:
                return "of mine only"
        raise AssertionError(f"the stream has ended: {self.probe}")


async def _blocks(response: httpx2.Response) -> AsyncIterator[str]:
    """Parts of an event stream; lines end nowhere else than at a line feed."""
    rest = ""
    async for part in response.aiter_text():
        *blocks, rest = (rest + part).split("\n\n")
        for block in blocks:
            yield block


def _filters() -> Iterator[tuple[str, str | None]]:
    """Beginnings of uris, and batches, that a change may have."""
    for prefix in ("", "docs/", "%", "_", "*", "beta/", *INJECTIONS):
        with contextlib.suppress(ValidationError):
            DocumentChange(project=MINE, uri=f"{prefix}a.md", change="delete")
            yield prefix, None
    yield from (("", "import"), ("", THEIRS), ("docs/", "a:b"))


def _note(project: str, uri: str, batch: str | None, agent: str | None = None) -> DocumentChanged:
    content = "The weir holds the water of the mill.\n"
    change = DocumentChange(project=project, uri=uri, content=content, agent=agent)
    return DocumentChanged(batch=batch, data=change)


async def test_an_open_stream_shows_what_is_mine_only(probed: Field, record: Record) -> None:
    """Changes of others have the same beginnings and batches, and come before those of mine."""
    theirs: list[DocumentChanged] = []
    mine: list[DocumentChanged] = []
    results = Counter[str]()
    async with AsyncExitStack() as exits:
        client = await exits.enter_async_context(httpx2.AsyncClient(timeout=60))
        listeners: list[_Listener] = []
        for number, (prefix, batch) in enumerate(_filters()):
            marker = f"{prefix}marker-{number}.md"
            theirs.append(_note(THEIRS, f"{prefix}{SECRETS[0]}-{number}.md", batch))
            theirs.append(_note(MINE, f"{prefix}{SECRETS[1]}-{number}.md", batch, agent="ann"))
            mine.append(_note(MINE, marker, batch))
            probe = Probe(
                *("stream", "GET", f"/v1/projects/{MINE}/events", ("mine", "bob")[number % 2]),
                parameters={"prefix": prefix} | ({} if batch is None else {"batch": batch}),
                headers=_FROM_THE_BEGINNING if number % 3 == 0 else {},
            )
            headers = {**probe.headers, "Authorization": f"Bearer {probed.keys[probe.key]}"}
            response = await exits.enter_async_context(
                client.stream(
                    "GET", probed.gateway.url + probe.path, params=probe.parameters, headers=headers
                )
            )
            assert response.status_code == 200, await response.aread()
            blocks = _blocks(response)
            assert await anext(blocks) == "retry: 2000"
            assert "\nid: " in await anext(blocks), "the subscription has begun"
            listeners.append(_Listener(probe, marker, blocks))
        for changes in (theirs, mine):
            receipts = await probed.suspect.client.publish_many(changes)
            await probed.suspect.client.wait(receipts, PATIENCE)
        for listener in listeners:
            results[await listener.read()] += 1
    assert results.total() > 10
    record("open event streams", results)


async def test_the_status_is_streamed_to_operators_only(probed: Field) -> None:
    url = f"{probed.gateway.url}/v1/status/events"
    headers = {"Authorization": f"Bearer {probed.keys['operator']}"}
    async with (
        httpx2.AsyncClient(timeout=60) as client,
        client.stream("GET", url, headers=headers) as response,
    ):
        blocks = _blocks(response)
        assert await anext(blocks) == "retry: 2000"
        block = await anext(blocks)
    assert block.startswith("event: status\n")
    assert not any(secret in block for secret in SECRETS)
