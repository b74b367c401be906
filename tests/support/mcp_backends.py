"""Backend of MCP tools with fixed answers, and servers around it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from events.models import (
    Citation,
    OtherMatch,
    QueryAnswer,
    Scores,
    SearchResult,
    SourceLines,
)
from gateway.mcp import tools
from gateway.mcp.application import McpApp
from gateway.mcp.backends import (
    Access,
    Backend,
    Change,
    Document,
    Page,
    Progress,
    ProjectStatus,
    Refreshed,
)
from gateway.mcp.backends import Text as Lines
from runtime.errors import NotFound, Unauthenticated
from tests.support.waiting import eventually

__all__ = ["KEY", "FixedBackend", "access", "answer_of", "random_answer", "serving"]

KEY = "hr_test"
STATUS = ProjectStatus("docs", 2, 3, 1, {"markdown": 2}, 1, "local/hash-384", 10.0, 20.0)


def answer_of(*passages: tuple[str, str]) -> QueryAnswer:
    """Answer with a result for each (uri, content)."""
    results = tuple(
        SearchResult(
            chunk_id=number,
            content=content,
            kind="markdown",
            citation=Citation(
                uri=uri, start_line=10, end_line=10 + content.count("\n"), heading_path=("Top",)
            ),
            scores=Scores(fused=0.5),
            match_type="hybrid",
        )
        for number, (uri, content) in enumerate(passages)
    )
    return QueryAnswer(query_id="q", project="docs", results=results, watermark={"live:0": "1-0"})


def random_answer(random_numbers: random.Random) -> QueryAnswer:
    """Answer with texts of any length, also with long lines, quotes and other scripts."""
    words = [
        "heron",
        "日本語",
        'say "no"',
        "back\\slash",
        "`fence`",
        "```",
        "naïve",
        "\t",
        "x" * 400,
    ]

    def content() -> str:
        lines = [
            " ".join(random_numbers.choices(words, k=random_numbers.randrange(12)))
            for _ in range(random_numbers.randrange(1, 80))
        ]
        return "\n".join(lines)

    count = random_numbers.randrange(1, 12)
    answer = answer_of(*((f"docs/{number}.md", content()) for number in range(count)))
    results = tuple(_with_places(result, random_numbers) for result in answer.results)
    return answer.model_copy(update={"results": results})


def _with_places(result: SearchResult, random_numbers: random.Random) -> SearchResult:
    """Add a definition, other matches, both or neither."""
    definition = (
        SourceLines(start_line=3, text="class Weir:"),
        SourceLines(start_line=8, text="    def flow(\n        level,\u202e\n    ):" + 300 * "x"),
    )
    others = tuple(
        OtherMatch(chunk_id=at, start_line=at, end_line=at, symbol=300 * "f", score=0.1)
        for at in range(random_numbers.randrange(1, 11))
    )
    places = {
        "definition": random_numbers.choice([None, definition]),
        "other_matches": random_numbers.choice([None, others]),
    }
    return result.model_copy(update=places)


class FixedBackend:
    """Answers every question with ``answer``, and remembers documents in memory."""

    def __init__(self, answer: QueryAnswer | None = None) -> None:
        self.answer = answer or answer_of(("docs/herons.md", "Herons nest in March."))
        self.texts = {"docs/herons.md": "Herons nest in March.\nSwans nest in April."}
        self.kind = "markdown"
        self.refreshed = Refreshed("live:0:3-0", ("docs: the sync did not end within 2 s",))
        self.searches: list[tools.Search] = []

    async def refresh(self, project: str) -> Refreshed:
        """Return a fixed token and note."""
        return self.refreshed

    async def search(self, search: tools.Search) -> QueryAnswer:
        """Return the fixed answer."""
        self.searches.append(search)
        return self.answer

    async def read(self, project: str, uri: str, first: int, last: int | None) -> Lines:
        """Return lines of a remembered document."""
        if uri not in self.texts:
            raise NotFound(f"{project} has no document {uri!r}", "list shows all")
        lines = self.texts[uri].split("\n")
        end = min(last or len(lines), len(lines))
        return Lines("\n".join(lines[first - 1 : end]), first, end, len(lines))

    async def document(self, project: str, uri: str) -> Document:
        """Return the row of a remembered document."""
        lines = await self.read(project, uri, 1, None)
        return Document(uri, self.kind, None, lines.total, "2026-01-01")

    async def documents(self, page: tools.List) -> Page:
        """Return a page of remembered documents; the cursor is a number."""
        uris = sorted(uri for uri in self.texts if uri.startswith(page.under))
        begin = int(page.after or 0)
        end = begin + page.limit
        rows = [Document(uri, "markdown", None, 2, "2026-01-01") for uri in uris[begin:end]]
        return Page(rows, str(end) if end < len(uris) else None)

    async def remember(self, document: tools.Remember) -> Change:
        """Keep a document."""
        self.texts[document.uri] = document.content
        return Change("live:0:1-0", "indexed")

    async def forget(self, document: tools.Forget) -> Change:
        """Remove a document."""
        del self.texts[document.uri]
        return Change("live:0:2-0", "waiting")

    async def status(self, project: str) -> ProjectStatus:
        """Return a fixed status."""
        return STATUS

    async def change(self, project: str, token: str) -> Change:
        """Report every change as rejected."""
        return Change(token, "rejected", "the content is too big")


def access(backend: Backend, *, project: str | None = "docs", may_publish: bool = True) -> Access:
    """Access that opens a backend and reports it."""

    async def opened(report: Progress) -> Backend:
        await report("opening")
        return backend

    return Access(project, may_publish, opened)


@asynccontextmanager
async def serving(granted: Access, port: int) -> AsyncIterator[str]:
    """Serve MCP by uvicorn; without the key, a request gets 401. Yields the address."""

    async def access_for(request: Request) -> Access:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            raise Unauthenticated("no key")
        return granted

    mounted = McpApp(access_for)
    config = uvicorn.Config(_guarded(mounted), port=port, log_config=None, lifespan="off")
    server = uvicorn.Server(config)

    async def run() -> None:
        async with mounted.running():
            await server.serve()

    task = asyncio.create_task(run())  # so that a client may outlive it
    try:
        await eventually(lambda: server.started, "the server listens")
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await task


def _guarded(app: ASGIApp) -> ASGIApp:
    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except Unauthenticated:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    return guarded
