"""Small OpenAI-compatible language model on loopback, which writes scripted contexts."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bench.stack import served

__all__ = ["ContextRequest", "LanguageModel", "Reply", "running_model"]

_PASSAGE = re.compile(r"^\[(\d+)\] .*\n", re.MULTILINE)
_ASKED = re.compile(r"for the numbers ([\d, ]+)\.")


@dataclass(frozen=True)
class ContextRequest:
    """A request for contexts: the text of the window, and the numbers that are asked for."""

    window: str
    numbers: tuple[int, ...]

    @property
    def passages(self) -> Mapping[int, str]:
        """Texts of all passages of the window, by number."""
        document = self.window[self.window.index("BEGIN DOCUMENT") :]
        _, *parts = _PASSAGE.split(document.rpartition("\nEND DOCUMENT")[0])
        return {int(parts[at]): parts[at + 1].strip() for at in range(0, len(parts), 2)}

    @property
    def asked_passages(self) -> tuple[str, ...]:
        """Texts of the passages that are asked for."""
        return tuple(self.passages[number] for number in self.numbers)


Reply = Callable[[ContextRequest], Any]
"""Text of an answer, or a whole HTTP response, or an awaitable of one of them."""


def _sentence(passage: str) -> str:
    words = passage.split()
    return f"Summary of {' '.join(words[:8])}." if words else "Summary."


@dataclass
class LanguageModel:
    """Server that answers each request correctly, unless ``replies`` has a scripted one for it."""

    base_url: str = ""
    write: Callable[[str], str] = _sentence
    replies: deque[Reply] = field(default_factory=deque)
    requests: list[ContextRequest] = field(default_factory=list)
    probes: int = 0

    def correct(self, request: ContextRequest) -> str:
        """Write the right answer to a request."""
        passages = request.passages
        return json.dumps({str(each): self.write(passages[each]) for each in request.numbers})

    async def complete(self, http: web.Request) -> web.StreamResponse:
        """Answer one request."""
        body = await http.json()
        text = _text(body["messages"][-1]["content"])
        asked = _ASKED.search(text)
        if asked is None:
            self.probes += 1
            request = None
        else:
            numbers = tuple(int(number) for number in asked[1].split(","))
            request = ContextRequest(text[: asked.start()], numbers)
            self.requests.append(request)
        # a scripted reply also meets the probes of a model that is down
        if self.replies:
            answer = self.replies.popleft()(request or ContextRequest("", ()))
            answer = await answer if hasattr(answer, "__await__") else answer
        else:
            answer = "yes" if request is None else self.correct(request)
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.json_response(_completion(body, str(answer)))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content)


def _completion(body: dict[str, Any], text: str) -> dict[str, Any]:
    tokens_in = len(json.dumps(body["messages"])) // 4
    tokens_out = max(1, len(text) // 4)
    return {
        "id": "stub",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
            "prompt_tokens_details": {"cached_tokens": tokens_in // 2},
        },
    }


@asynccontextmanager
async def running_model() -> AsyncIterator[LanguageModel]:
    """Start the server on a free port of this machine, and stop it at the end."""
    model = LanguageModel()
    application = web.Application(client_max_size=2**24)
    application.router.add_post("/v1/chat/completions", model.complete)
    async with served(application) as address:
        model.base_url = f"{address}/v1"
        yield model
