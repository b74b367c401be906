"""Requests of a ``.http`` file, as editors send them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

__all__ = ["FileRequest", "requests_of", "send_all"]

_VARIABLE = re.compile(r"\{\{([^{}]+)\}\}")
_DEFINITION = re.compile(r"@(\w+) = (.*)")
_NAME = re.compile(r"# @name (\w+)")
_ENDLESS = "text/event-stream"
_STEP = re.compile(r"(\w+)|\[(\d+)\]")


@dataclass(frozen=True)
class FileRequest:
    """A request before its variables are filled in. ``name`` is empty if nothing refers to it."""

    title: str
    name: str
    method: str
    url: str
    headers: Mapping[str, str]
    body: str


def requests_of(file: Path) -> tuple[dict[str, str], list[FileRequest]]:
    """Return the variables of a file and its requests, in order."""
    head, *parts = re.split(r"^### ", file.read_text("utf-8"), flags=re.MULTILINE)
    matches = [match for match in map(_DEFINITION.match, head.splitlines()) if match]
    variables = {match[1]: match[2] for match in matches}
    return variables, [_request(part) for part in parts]


def _request(part: str) -> FileRequest:
    head, _, body = part.partition("\n\n")
    title, *lines = head.splitlines()
    name = ""
    if match := _NAME.match(lines[0]):
        name = match[1]
        lines.pop(0)
    method, _, url = lines.pop(0).partition(" ")
    headers = dict(line.split(": ", 1) for line in lines)
    return FileRequest(title, name, method, url, headers, body.strip("\n"))


async def send_all(file: Path, environment: Mapping[str, str]) -> list[httpx2.Response]:
    """Send the requests of a file one after the other; of an event stream, read the beginning."""
    variables, requests = requests_of(file)
    answers: dict[str, Any] = {}

    def fill(text: str) -> str:
        return _VARIABLE.sub(lambda match: value(match[1]), text)

    def value(expression: str) -> str:
        if expression.startswith("$processEnv "):
            return environment[expression.removeprefix("$processEnv ")]
        name, _, path = expression.partition(".response.body.")
        if not path:
            return fill(variables[name])
        answer = answers[name]
        for field, index in _STEP.findall(path):
            answer = answer[field or int(index)]
        return str(answer)

    responses = []
    async with httpx2.AsyncClient(timeout=60) as client:
        for request in requests:
            headers = {name: fill(text) for name, text in request.headers.items()}
            async with client.stream(
                request.method, fill(request.url), headers=headers, content=fill(request.body)
            ) as response:
                if response.headers.get("content-type", "").startswith(_ENDLESS):
                    await anext(response.aiter_raw())
                else:
                    await response.aread()
            responses.append(response)
            if request.name:
                answers[request.name] = response.json()
    return responses
