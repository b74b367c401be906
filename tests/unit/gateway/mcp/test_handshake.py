"""The handshake without the SDK: a client can't distinguish it from the SDK's server."""

from __future__ import annotations

import asyncio
import io
import json
import os
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import PARSE_ERROR
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from gateway.mcp.handshake import FILE, LONGEST_LINE, Handshake
from gateway.mcp.recorder import render_answers
from gateway.mcp.server import serve_text
from gateway.mcp.stdio import converse, rest_of
from tests.support.mcp_backends import FixedBackend, access

LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
CLIENT = {"name": "editor", "version": "1.0"}
CAPABILITIES: tuple[Any, ...] = (
    {},
    {"roots": {"listChanged": True}},
    {"roots": {}, "sampling": {"context": {}, "tools": {"a": 1}}},
    {"elicitation": {"form": {"applyDefaults": True}, "url": {}}},
    {"tasks": {"list": {}, "requests": {"sampling": {"createMessage": {}}}}},
    {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}},
    {"experimental": {"a": {"b": [1, None]}}, "new": {"c": {}}},
)
WRONG: tuple[Any, ...] = (None, True, 1, 1.5, "x", [], [{}], {}, {"a": None}, {"listChanged": 1})


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def request(method: str, params: object = None, number: object = 1) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": number, "method": method}
    return message if params is None else {**message, "params": params}


def initialize(version: object = "2025-11-25", **changes: object) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
    return request("initialize", params | changes)


def envelope(**changes: object) -> dict[str, Any]:
    fields = {"protocolVersion": "2026-07-28", "clientInfo": CLIENT, "clientCapabilities": {}}
    prefix = "io.modelcontextprotocol/"
    return {"_meta": {f"{prefix}{name}": value for name, value in (fields | changes).items()}}


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
OPENINGS = (
    *(initialize(version) for version in (*HANDSHAKE_PROTOCOL_VERSIONS, "1999-01-01")),
    *(initialize(capabilities=capabilities) for capabilities in CAPABILITIES),
    *(request("server/discover", envelope(clientCapabilities=each)) for each in CAPABILITIES),
    request("tools/list", envelope()),
)
WELL_FORMED = (
    INITIALIZED,
    {**INITIALIZED, "params": {}},
    *(request(method) for method in ("ping", "server/discover", *LISTS)),
    *(request(method, envelope()) for method in ("ping", "server/discover", *LISTS)),
    request("ping", {}),
    request("tools/list", {"cursor": "a"}),
    request("tools/list", {"_meta": {"progressToken": 1}}),
    request("tools/call", {"name": "status", "arguments": {}}),
    request("tools/call", {"name": "status", "arguments": {}} | envelope()),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "id": 1, "result": {}},
)
UNUSUAL = (
    b"\n",
    b"not JSON\n",
    b"[]\n",
    b"\xff\n",
    b"\xef\xbb\xbf" + line(request("ping")),
    line(request("ping")).replace(b"\n", b"\r\n"),
    line(request("ping")).replace(b" ", b"\r"),
    line(request("ping")).replace(b"{", b'{"id": 2, '),
    line(request("ping") | {"more": 1}),
    line(request("ping") | {"jsonrpc": "1.0"}),
    line(request("ping", number="a\ud800")),
    line(request("ping", number="日本")),
    line(request("ping", {"a": float("nan")})),
    line(initialize(capabilities={"experimental": {"a": {"b": [[[[]]] * 90]}}})),
    line(initialize(capabilities={"experimental": {"a": {"b": float("inf")}}})),
)


def changed(message: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """The message with another value at a random place of it."""
    places: list[tuple[str, ...]] = []

    def visit(value: object, path: tuple[str, ...]) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                places.append((*path, name))
                visit(inner, (*path, name))

    def put(path: tuple[str, ...], value: object) -> bytes:
        copy = json.loads(json.dumps(message))
        holder = copy
        for name in path[:-1]:
            holder = holder[name]
        holder[path[-1]] = value
        return line(copy)

    visit(message, ())
    values = st.sampled_from(WRONG) | st.integers() | st.floats() | st.text()
    return st.builds(put, st.sampled_from(places), values)


def sessions() -> st.SearchStrategy[list[bytes]]:
    """Lines of a client. Most sessions open as one of a real client does."""
    valid: st.SearchStrategy[dict[str, Any]] = st.sampled_from(OPENINGS)
    usual: st.SearchStrategy[dict[str, Any]] = st.sampled_from(WELL_FORMED)
    opening = st.one_of(valid.map(line), valid.map(line), valid.flatmap(changed), usual.map(line))
    other = st.one_of(usual.map(line), st.sampled_from(UNUSUAL), usual.flatmap(changed))
    return st.tuples(opening, st.lists(other, max_size=4)).map(lambda pair: [pair[0], *pair[1]])


def responses(lines: list[bytes], handshake: Handshake | None) -> list[str]:
    """Responses to a client that sends all lines at once, sorted.

    Without a handshake, all of them are those of the SDK's server.
    """
    incoming, sending = os.pipe()
    receiving, outgoing = os.pipe()
    stdin, to_server = os.fdopen(incoming, "rb"), os.fdopen(sending, "wb")
    from_server, stdout = os.fdopen(receiving, "rb"), os.fdopen(outgoing, "wb")
    granted = access(FixedBackend(), project="notes")

    def serve() -> None:
        lead = b"" if handshake is None else converse(handshake, stdin, stdout)
        with stdin, io.TextIOWrapper(stdout, encoding="utf-8") as text:
            assert lead is not None
            replayed = None if handshake is None else handshake.replayed
            asyncio.run(serve_text(granted, rest_of(lead, stdin), text, replayed))

    server = Thread(target=serve)
    server.start()
    received: list[Any] = []
    with to_server, from_server:
        to_server.write(b"".join(lines))
        # the last of these ends the handshake, and those before have their responses by then
        for number, method in (("last-1", "ping"), ("last-2", "none"), ("last-3", "ping")):
            to_server.write(line(request(method, number=number)))
            to_server.flush()
            while not received or received[-1].get("id") != number:
                received.append(json.loads(from_server.readline()))
        to_server.close()
        received += [json.loads(rest) for rest in from_server]
    server.join()
    return sorted(json.dumps(message, sort_keys=True) for message in received)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(lines=sessions())
def test_a_client_receives_the_responses_of_the_sdk(lines: list[bytes]) -> None:
    """The same session with and without the handshake: also for what is malformed."""
    handshake = Handshake("notes", may_publish=True)
    assert responses(lines, handshake) == responses(lines, None)


@pytest.mark.parametrize("unusual", UNUSUAL)
@pytest.mark.parametrize("opening", [initialize(), request("server/discover", envelope())])
def test_unusual_lines_within_a_session(opening: dict[str, Any], unusual: bytes) -> None:
    lines = [line(opening), unusual]
    assert responses(lines, Handshake("notes", may_publish=True)) == responses(lines, None)


def test_a_line_that_is_not_json_gets_an_error() -> None:
    """It has no id; blank lines and other messages that are not valid get none."""
    lines = [line(initialize()), b"not JSON\n", b"\n", b"[]\n"]
    received = [json.loads(response) for response in responses(lines, None)]
    [error] = [response["error"] for response in received if response["id"] is None]
    assert error["code"] == PARSE_ERROR


def test_a_client_that_falls_back_gets_the_refusal_of_the_server() -> None:
    """A session that began without a handshake cannot begin one."""
    lines = [
        line(request("server/discover", envelope())),
        line(initialize()),
        line(INITIALIZED),
        line(request("tools/list", number=2)),
    ]
    assert responses(lines, Handshake("notes", may_publish=True)) == responses(lines, None)


def test_the_recorded_answers_are_current() -> None:
    """`make docs` renews them."""
    assert FILE.read_text(encoding="utf-8") == render_answers()


@pytest.mark.parametrize("version", [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS])
@pytest.mark.parametrize("project", ["notes", None])
@pytest.mark.parametrize("may_publish", [True, False])
def test_every_usual_start_is_answered(
    version: str, project: str | None, may_publish: bool
) -> None:
    """No usual message of a start must wait for the SDK; the answers depend on the access."""
    handshake = Handshake(project, may_publish=may_publish)
    results = {}
    if version in MODERN_PROTOCOL_VERSIONS:
        messages = [request(name, envelope()) for name in ("server/discover", *LISTS)]
    else:
        assert handshake.answer(line(initialize(version))) is not None
        assert handshake.answer(line(INITIALIZED)) == b""
        messages = [request(name) for name in ("ping", *LISTS)]
    for message in messages:
        answer = handshake.answer(line(message))
        assert answer is not None
        results[message["method"]] = json.loads(answer)["result"]
    tools = {tool["name"]: tool["inputSchema"] for tool in results["tools/list"]["tools"]}
    assert ("forget" in tools) == may_publish
    assert ("project" in tools["search"]["properties"]) == (project is None)


@pytest.mark.parametrize("project", ["notes", 'a "b" \\ <project>', None])
def test_instructions_name_the_project(project: str | None) -> None:
    handshake = Handshake(project, may_publish=True)
    answer = handshake.answer(line(initialize()))
    assert answer is not None
    instructions = json.loads(answer)["result"]["instructions"]
    assert (f"the project {project};" in instructions) == (project is not None)


def test_what_a_server_must_know() -> None:
    """The opening and the notification after it are replayed in order, the lists are not."""
    handshake = Handshake(None, may_publish=True)
    for message in (initialize(), request("tools/list"), INITIALIZED, request("ping")):
        assert handshake.answer(line(message)) is not None
    opening, notification = handshake.replay.splitlines(keepends=True)
    assert json.loads(opening) == initialize() | {"id": handshake.replayed}
    assert notification == line(INITIALIZED)


@pytest.mark.parametrize("size", [LONGEST_LINE, 5_000_000])
def test_a_long_line(size: int) -> None:
    """It reaches the server as a whole, and is not parsed before."""
    call = {"name": "remember", "arguments": {"uri": "a.md", "content": "x" * size}}
    lines = [
        line(initialize()),
        line(request("tools/call", call, 2)),
        line(request("ping", None, 3)),
    ]
    answers = responses(lines, Handshake("notes", may_publish=True))
    assert any(
        '"state": "indexed"' in json.loads(answer) or "live:0:1-0" in answer for answer in answers
    )
    assert answers == responses(lines, None)


def test_every_id_of_a_client_has_its_response() -> None:
    """The first request is replayed under an id that differs from session to session."""
    names = ("", "headrace-handshake", Handshake(None, may_publish=True).replayed)
    call = {"name": "status", "arguments": {}}
    lines = [
        line(initialize()),
        *(line(request("tools/call", call, name)) for name in names),
        line(request("ping", None, 3)),
    ]
    answers = responses(lines, Handshake("notes", may_publish=True))
    assert {*names} < {json.loads(answer)["id"] for answer in answers}
    assert answers == responses(lines, None)


@pytest.mark.parametrize("rest", [b"", b'{"jsonrpc": "2.0", "id": 2, "method": "ping"}'])
def test_the_end_of_input(rest: bytes) -> None:
    """After the last line the server is not needed; a line without its end is left to it."""
    reader = io.BufferedReader(io.BytesIO(line(initialize()) + rest))
    written = io.BytesIO()
    writer = io.BufferedWriter(written)
    lead = converse(Handshake(None, may_publish=True), reader, writer)
    assert written.getvalue().count(b"\n") == 1
    assert (lead is None) == (rest == b"")
    assert (lead or b"").endswith(rest)
