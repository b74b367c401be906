"""Small OpenAI-compatible embedding server with scripted faults."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bench.stack import served

__all__ = ["DIMENSIONS", "ModelServer", "running_server", "vector_of"]

DIMENSIONS = 8

Fault = Callable[["ModelServer", list[str]], Any]


def vector_of(text: str, width: int = DIMENSIONS) -> list[float]:
    """Vector that identifies its text by length and first character codes; not of unit length."""
    codes = [float(ord(character)) for character in text[: width - 1]]
    return [float(len(text) + 1), *codes, *[0.0] * (width - 1 - len(codes))]


def body(vectors: list[list[float]]) -> dict[str, Any]:
    """OpenAI embedding response."""
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": 3 * len(vectors), "total_tokens": 3 * len(vectors)}
    return {"object": "list", "data": data, "model": "test", "usage": usage}


@dataclass
class ModelServer:
    """Server whose requests use up one of ``faults`` each; without a fault the answer is right."""

    key: str = "right-key"
    base_url: str = ""
    faults: deque[Fault] = field(default_factory=deque)
    requests: list[list[str]] = field(default_factory=list)
    input_types: list[str | None] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "wrong key"}}, status=401)
        body = await request.json()
        texts = body["input"]
        self.input_types.append(body.get("input_type"))
        self.requests.append(texts)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            fault = self.faults.popleft() if self.faults else correct
            answer = fault(self, texts)
            answer = await answer if asyncio.iscoroutine(answer) else answer
        finally:
            self.in_flight -= 1
        return answer if isinstance(answer, web.Response) else web.json_response(answer)


def correct(_: ModelServer, texts: list[str]) -> dict[str, Any]:
    return body([vector_of(text) for text in texts])


def status(code: int, **headers: str) -> Fault:
    """Error response; underscores in header names become hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    error = {"error": {"message": f"status {code}", "type": "test", "code": str(code)}}
    return lambda _, __: web.json_response(error, status=code, headers=named)


def unless(word: str, code: int) -> Fault:
    """Error response to requests with a word in a text; the others are answered."""
    refusal = status(code)
    return lambda server, texts: (
        refusal(server, texts) if any(word in text for text in texts) else correct(server, texts)
    )


async def stall(server: ModelServer, texts: list[str]) -> dict[str, Any]:
    """Answer when the gate opens."""
    await server.gate.wait()
    return correct(server, texts)


def too_few(_: ModelServer, texts: list[str]) -> dict[str, Any]:
    return body([vector_of(text) for text in texts[:-1]])


def reordered(server: ModelServer, texts: list[str]) -> dict[str, Any]:
    answer = correct(server, texts)
    answer["data"].reverse()
    return answer


def doubled_index(server: ModelServer, texts: list[str]) -> dict[str, Any]:
    answer = correct(server, texts)
    for item in answer["data"]:
        item["index"] = 0
    return answer


def filled(value: float) -> Fault:
    """Vectors of one value: NaN, infinity, zero."""
    return lambda _, texts: body([[value] * DIMENSIONS for _ in texts])


def wide(width: int) -> Fault:
    return lambda _, texts: body([vector_of(text, width) for text in texts])


def ragged(_: ModelServer, texts: list[str]) -> dict[str, Any]:
    return body([vector_of(text, DIMENSIONS + index) for index, text in enumerate(texts)])


def not_json(_: ModelServer, __: list[str]) -> web.Response:
    return web.Response(text="<html>bad gateway</html>", content_type="text/html")


def sends(answer: Any) -> Fault:
    """Any JSON."""
    return lambda _, __: web.json_response(answer)


def miscounted(tokens: Any) -> Fault:
    """Right vectors with an invalid count of tokens."""
    return lambda server, texts: (
        correct(server, texts) | {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    )


@asynccontextmanager
async def running_server() -> AsyncIterator[ModelServer]:
    """Server on a free port of this machine."""
    server = ModelServer()
    application = web.Application()
    application.router.add_post("/v1/embeddings", server.embeddings)
    async with served(application) as address:
        server.base_url = f"{address}/v1"
        try:
            yield server
        finally:
            server.gate.set()
