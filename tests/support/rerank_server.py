"""Small reranking server of Cohere's form with scripted faults."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bench.stack import served

__all__ = [
    "RerankServer",
    "answers",
    "correct",
    "running_reranker",
    "stall",
    "status",
]

Fault = Callable[["RerankServer", list[str]], Any]


def relevance_of(text: str) -> float:
    """Relevance by the number of the word ``weir`` in a text: none, one or more."""
    return min(0.9, 0.1 + 0.4 * text.lower().count("weir"))


def correct(_: RerankServer, texts: list[str]) -> dict[str, Any]:
    results = [
        {"index": index, "relevance_score": relevance_of(text)} for index, text in enumerate(texts)
    ]
    ordered = sorted(results, key=lambda result: -result["relevance_score"])
    return {"id": "1", "results": ordered, "meta": {"billed_units": {"search_units": 1}}}


def status(code: int, **headers: str) -> Fault:
    """Error response; underscores in header names become hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _, __: web.json_response({"message": f"{code}"}, status=code, headers=named)


def answers(change: Callable[[list[dict[str, Any]]], Any]) -> Fault:
    """Right answer whose list of results is changed."""
    return lambda server, texts: {
        **correct(server, texts),
        "results": change(correct(server, texts)["results"]),
    }


async def stall(server: RerankServer, texts: list[str]) -> dict[str, Any]:
    """Answer when the gate opens."""
    await server.gate.wait()
    return correct(server, texts)


@dataclass
class RerankServer:
    """Server whose requests use up one of ``faults`` each; without a fault the answer is right."""

    base_url: str = ""
    faults: deque[Fault] = field(default_factory=deque)
    requests: list[tuple[str, list[str]]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def rerank(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append((body["query"], body["documents"]))
        fault = self.faults.popleft() if self.faults else correct
        answer = fault(self, body["documents"])
        answer = await answer if asyncio.iscoroutine(answer) else answer
        return answer if isinstance(answer, web.Response) else web.json_response(answer)


@asynccontextmanager
async def running_reranker() -> AsyncIterator[RerankServer]:
    """Server on a free port of this machine."""
    server = RerankServer()
    application = web.Application()
    application.router.add_post("/v2/rerank", server.rerank)
    async with served(application) as server.base_url:
        try:
            yield server
        finally:
            server.gate.set()
