"""Recorder of the answers for ``handshake``: it asks the SDK's server for each of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from itertools import product
from typing import Any

from anyio import create_memory_object_stream, create_task_group
from mcp.shared.message import SessionMessage
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from gateway.mcp.backends import Access, Backend, Progress
from gateway.mcp.handshake import PROJECT
from gateway.mcp.server import Context, create_server

__all__ = ["render_answers"]

_LISTS = ("ping", "tools/list", "prompts/list", "resources/list", "resources/templates/list")
_CLIENT = {"name": "recorder", "version": "1"}


def render_answers() -> str:
    """Write the answers as the text of their file, in a line each.

    ``project`` and ``publish`` describe the access: it has a project, it may publish. ``result`` is
    the result of the method in all ``versions`` of the protocol.
    """
    return "".join(
        json.dumps(row, ensure_ascii=False) + "\n"
        for has_project, may_publish in product((True, False), repeat=2)
        for row in asyncio.run(_rows(has_project=has_project, may_publish=may_publish))
    )


async def _rows(*, has_project: bool, may_publish: bool) -> list[dict[str, Any]]:
    """Rows of one access. Equal results of a method are one row."""
    access = Access(PROJECT if has_project else None, may_publish, _never_opened)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    async for version, method, result in _answers(access):
        row = rows.setdefault(
            (method, json.dumps(result, sort_keys=True)),
            {
                "method": method,
                "project": has_project,
                "publish": may_publish,
                "versions": [],
                "result": result,
            },
        )
        row["versions"].append(version)
    return [*rows.values()]


async def _answers(access: Access) -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
    """Versions, methods and results of servers with this access; errors are left out."""
    for version in HANDSHAKE_PROTOCOL_VERSIONS:
        proposal = {"protocolVersion": version, "capabilities": {}, "clientInfo": _CLIENT}
        async for method, result in _results(access, {"initialize": proposal}, None):
            yield version, method, result
    for version in MODERN_PROTOCOL_VERSIONS:
        meta = {PROTOCOL_VERSION_META_KEY: version, CLIENT_CAPABILITIES_META_KEY: {}}
        envelope = {"_meta": meta}
        async for method, result in _results(access, {"server/discover": envelope}, envelope):
            yield version, method, result


async def _results(
    access: Access, opening: Mapping[str, dict[str, Any]], params: dict[str, Any] | None
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Results of a new server, whose first request is ``opening``; lists have the other params."""

    async def access_of(_: Context) -> Access:
        return access

    server = create_server(access_of, access.project)
    sent, incoming = create_memory_object_stream[SessionMessage | Exception]()
    outgoing, received = create_memory_object_stream[SessionMessage]()
    async with create_task_group() as tasks, sent, received:
        tasks.start_soon(server.run, incoming, outgoing, server.create_initialization_options())
        for method, parameters in [*opening.items(), *((name, params) for name in _LISTS)]:
            request = JSONRPCRequest(jsonrpc="2.0", id=1, method=method, params=parameters)
            await sent.send(SessionMessage(request))
            message = (await received.receive()).message
            if isinstance(message, JSONRPCResponse):
                yield method, message.result
        sent.close()


async def _never_opened(_: Progress) -> Backend:
    raise NotImplementedError("lists reach no backend")
