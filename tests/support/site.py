"""Pages on a free port of this machine, with contents that a test chooses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.middleware import Middleware

from events.models import (
    Citation,
    Kind,
    QueryAnswer,
    RetrieverScore,
    Scores,
    SearchResult,
)
from events.streams.letter_selection import LetterOutcome
from gateway.auth.callers import Caller, Right
from gateway.http.middleware import Guard
from gateway.web.pages import Site, pages
from runtime.errors import Conflict, Forbidden, NotFound, Unauthenticated, Unavailable
from store.generations.catalog import Recipe
from store.views.listing import (
    ChunkRow,
    CollectionRow,
    DocumentRow,
    Lines,
    ProjectRow,
)

__all__ = ["API_KEY", "FORM_VALUE", "Contents", "served"]

API_KEY = "hr_12345678_secret"
FORM_VALUE = "value that the forms of the session carry"
_POSITION = "live:0:1-0"
_COOKIE = "hrs_0123456789"
_NOW = datetime(2026, 11, 22, 14, 2, 11, tzinfo=UTC)
_DOWN = Unavailable("Postgres can't be reached", "check that it runs")

CODE = '''"""Connections with a time limit."""

import asyncio


class Connection:
    """A connection that reconnects by itself."""

    def __init__(self, host: str, connect_timeout: float = 5.0) -> None:
        self.host = host
        self.connect_timeout = connect_timeout  # seconds

    async def connect(self) -> None:
        """Connect, and retry three times.

        Raises:
            TimeoutError: the server did not respond.
        """
        for attempt in range(3):
            try:
                async with asyncio.timeout(self.connect_timeout):
                    return await self._open()
            except OSError:
                await asyncio.sleep(2 ** attempt)
        raise TimeoutError(self.host)
'''
PROSE = """# Retries

A client retries a request that failed before it reached the server. The *timeout* of a connection
counts for each attempt, and `connect_timeout` sets it.

Retries stop after the deadline of the call, however many attempts were made until then.
"""


@dataclass(frozen=True)
class Session:
    """A session; its token is right only in its own forms."""

    caller: Caller
    cookie: str
    csrf_token: str = FORM_VALUE

    def check_form(self, csrf_token: str) -> None:
        """Raise Forbidden if the token is another."""
        if csrf_token != self.csrf_token:
            raise Forbidden("the form does not belong to this session", "load the page again")


@dataclass
class Contents:
    """Everything that the pages show; a test changes the parts it is about.

    ``texts`` are the documents by uri. If ``failing`` is set, every reading fails. ``done`` records
    the changes that the pages asked for. While ``unhandled`` is set, no change is in the ledger.
    """

    texts: dict[str, str] = field(
        default_factory=lambda: {"client/connection.py": CODE, "docs/retries.md": PROSE}
    )
    failing: bool = False
    operator: bool = True
    warnings: list[str] = field(default_factory=list)
    sources: list[Any] = field(default_factory=list)
    letters: list[Any] = field(default_factory=list)
    generations: list[Any] = field(default_factory=list)
    evaluations: list[Any] = field(default_factory=list)
    history: list[Any] = field(default_factory=list)
    batch: Any = None
    replay: Any = None
    unhandled: bool = False
    done: list[tuple[Any, ...]] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    sessions: dict[str, Session] = field(default_factory=dict)

    @classmethod
    def full(cls) -> Contents:
        """Something on every screen."""
        return cls(
            warnings=["2 dead letters; run `headrace dead list`"],
            sources=[_source()],
            letters=[_letter(number) for number in range(1, 4)],
            generations=[_generation(1, "former"), _generation(2, "live")],
            evaluations=[_evaluation(3, 0.71), _evaluation(2, 0.74), _evaluation(1, 0.69)],
            history=[_point(minute) for minute in range(60)],
            batch=SimpleNamespace(
                published=1200,
                indexed=800,
                superseded=10,
                duplicate=0,
                rejected=2,
                waiting=388,
                chunks_added=9_120,
                tokens_embedded=1_204_000,
                cost_usd=0.0241,
                per_s=61.5,
                seconds_left=6.3,
            ),
            replay=SimpleNamespace(
                id="r1",
                state="running",
                has_ended=False,
                operation="replay",
                project="default",
                options={},
                began_at=_NOW,
                result=None,
                stage="build",
                done=420,
                total=1000,
                rate_per_s=115.0,
                seconds_left=5.0,
                questions=SimpleNamespace(answered=12, failed=0),
                error=None,
            ),
        )

    @classmethod
    def empty(cls) -> Contents:
        """A deployment without any document."""
        return cls(texts={})


@contextmanager
def served(contents: Contents) -> Iterator[str]:
    """Serve the pages; returns their address."""
    application = FastAPI(middleware=[Middleware(Guard, max_document_bytes=2**20)])
    application.include_router(
        pages(
            Site(
                _Sessions(contents),
                _Knowledge(contents),
                _Batches(contents),
                _Operations(contents) if contents.operator else None,
            )
        )
    )
    config = uvicorn.Config(application, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join()


@dataclass
class _Sessions:
    contents: Contents

    async def redeem(self, ticket: str) -> Session:
        if ticket != "right":
            raise Unauthenticated("the link was used before, or is too old", "print another")
        return await self.open_session(API_KEY)

    async def open_session(self, api_key: str, address: str = "") -> Session:
        if api_key != API_KEY:
            raise Unauthenticated("the API key is not valid", "check it")
        rights = set(Right) if self.contents.operator else {Right.ASK, Right.READ}
        caller = Caller("12345678", None, None, frozenset(rights))
        self.contents.sessions[_COOKIE] = Session(caller, _COOKIE)
        return self.contents.sessions[_COOKIE]

    async def find(self, cookie: str) -> Session:
        if cookie not in self.contents.sessions:
            raise Unauthenticated("the session has ended", "log in again")
        return self.contents.sessions[cookie]

    async def end(self, cookie: str) -> None:
        self.contents.sessions.pop(cookie, None)


@dataclass
class _Knowledge:
    contents: Contents

    async def ask(self, caller: Caller, project: str, question: Any) -> QueryAnswer:
        self.contents.asked.append(question)
        self.check()
        results = tuple(
            _result(number, uri, text)
            for number, (uri, text) in enumerate(self.contents.texts.items(), start=1)
            if "nothing" not in question.text
        )
        return QueryAnswer(
            query_id="q",
            project=project,
            results=results,
            context="1. …" if question.context_tokens else None,
            watermark={"live:0": f"{int(_NOW.timestamp() * 1000)}-0"},
            generation=2,
            timings_ms={"wait": 0.4, "embed": 3.1, "search": 5.2, "fuse": 0.3, "assemble": 0.2},
            corrections={"retrys": "retries"} if "retrys" in question.text else {},
        )

    def reading(self, caller: Caller, project: str | None = None) -> _Listing:
        self.check()
        return _Listing(self.contents)

    def check(self) -> None:
        if self.contents.failing:
            raise _DOWN


@dataclass
class _Listing:
    contents: Contents

    async def projects(self) -> list[ProjectRow]:
        size = len(self.contents.texts)
        return [
            ProjectRow(name, size, size, 0, {}, 2, Recipe("local/hash-384"), 41.0, 220.0)
            for name in ("default", "notes")
        ]

    async def documents(self, project: str, agent: str | None, **conditions: Any) -> list[Any]:
        chosen = [
            _document(uri, text)
            for uri, text in sorted(self.contents.texts.items())
            if uri.startswith(conditions["under"] or "")
        ]
        cursors = [row.cursor for row in chosen]
        after = conditions["after"]
        start = cursors.index(after) + 1 if after else 0
        return chosen[start : start + conditions["limit"]]

    async def document(self, project: str, agent: str | None, uri: str) -> DocumentRow:
        return _document(uri, self._text(uri))

    async def chunks(self, project: str, agent: str | None, uri: str, **page: int) -> list[Any]:
        lines = self._text(uri).rstrip("\n").split("\n")
        half = max(1, len(lines) // 2)
        return [
            ChunkRow(
                number,
                number,
                first,
                last,
                None,
                None,
                f"part{number}",
                (),
                120,
                "local/hash-384",
                "…",
            )
            for number, (first, last) in enumerate([(1, half), (half + 1, len(lines))], start=1)
        ]

    async def lines(
        self, project: str, agent: str | None, uri: str, *, first: int = 1, last: int | None = None
    ) -> Lines:
        lines = self._text(uri).rstrip("\n").split("\n")
        chosen = lines[first - 1 : last]
        return Lines("\n".join(chosen), first, first + len(chosen) - 1, len(lines), "0" * 64)

    async def collections(self, project: str, agent: str | None) -> list[CollectionRow]:
        return [CollectionRow("guides", 1)] if self.contents.texts else []

    async def sources(self, project: str) -> Sequence[Any]:
        return self.contents.sources

    async def change(self, project: str, token: str) -> Any:
        if self.contents.unhandled:
            return None
        [change] = await self.changes(project, None)
        return change

    async def changes(self, project: str, agent: str | None, **conditions: Any) -> list[Any]:
        return [
            SimpleNamespace(
                token=_POSITION,
                event_id="e1",
                uri=conditions.get("uri") or "docs/broken.md",
                state=conditions.get("state") or "indexed",
                published_at=_NOW - timedelta(seconds=1),
                handled_at=_NOW,
                detail="",
            )
        ]

    def _text(self, uri: str) -> str:
        if uri not in self.contents.texts:
            raise NotFound(f"default has no document {uri!r}", "`headrace document list` lists all")
        return self.contents.texts[uri]


@dataclass
class _Batches:
    contents: Contents

    async def progress(self, project: str, batch: str) -> Any:
        if self.contents.batch is None:
            raise NotFound(f"there is no batch {batch!r}")
        return self.contents.batch

    async def rejected(self, project: str, batch: str, *, agent: str | None) -> list[Any]:
        return [
            SimpleNamespace(uri="docs/broken.md", token=_POSITION, reason="content is not UTF-8")
        ]


@dataclass
class _Operations:
    contents: Contents

    async def status(self) -> Mapping[str, Any]:
        if self.contents.failing:
            raise _DOWN
        streams = [
            {
                "topic": topic,
                "partition": 0,
                "lag": lag,
                "pending": 2,
                "oldest_unacknowledged_s": 0.8,
                "dead_letters": len(self.contents.letters) if topic.endswith("live") else 0,
            }
            for topic, lag in (
                ("document.changed.live", 12),
                ("document.changed.bulk", None),
                ("query.requested", 0),
            )
        ]
        worker = {
            "worker": "host:4711",
            "roles": ["indexer", "answerer"],
            "version": "0.1.0",
            "in_work": {"query.requested": 1},
            "done": 12_345,
            "retried": 3,
            "memory_bytes": 310 * 2**20,
            "loop_lag_s": 0.004,
            "silent_s": 1.2,
        }
        return {
            "streams": streams,
            "workers": [worker] if self.contents.texts else [],
            "models": [],
            "providers": [],
            "warnings": self.contents.warnings,
            "memory": {"used_bytes": 41 * 2**20, "limit_bytes": 512 * 2**20},
        }

    async def history(self, minutes: int = 120) -> list[Any]:
        return self.contents.history

    async def dead_letter_counts(self) -> list[Any]:
        if self.contents.failing:
            raise _DOWN
        counts: dict[tuple[str, str, str], int] = {}
        for letter in self.contents.letters:
            key = letter.topic, letter.error, letter.project
            counts[key] = counts.get(key, 0) + 1
        return [
            SimpleNamespace(topic=topic, error=error, project=project, count=count)
            for (topic, error, project), count in counts.items()
        ]

    async def dead_letters(self, **conditions: Any) -> list[Any]:
        if self.contents.failing:
            raise _DOWN
        return [
            letter
            for letter in self.contents.letters
            if conditions.get("error") in (None, letter.error)
        ]

    async def dead_letter(self, letter_id: str) -> Any:
        for letter in self.contents.letters:
            if letter.id == letter_id:
                return letter
        raise NotFound(f"there is no dead letter {letter_id!r}", "list them")

    async def redrive(self, ids: Any = None, **chosen: Any) -> list[Any]:
        return self._remove("redrive", ids, **chosen)

    async def drop(self, ids: Any = None, **chosen: Any) -> list[Any]:
        return self._remove("drop", ids, **chosen)

    def _remove(self, action: str, ids: Any, count: int | None = None, **chosen: Any) -> list[Any]:
        error = chosen.get("filter", {}).get("error")
        letters = [
            letter
            for letter in self.contents.letters
            if (letter.id in ids if ids else error in (None, letter.error))
        ]
        if count is not None and count != len(letters):
            raise Conflict(f"the filter selects {len(letters)} letters, not {count}", "look again")
        self.contents.letters = [
            letter for letter in self.contents.letters if letter not in letters
        ]
        self.contents.done.append((action, [letter.id for letter in letters]))
        outcome = LetterOutcome("", "redriven" if action == "redrive" else "dropped")
        if action == "redrive":
            outcome = replace(outcome, token=_POSITION, entry_id="2-0", project="default")
        return [replace(outcome, id=letter.id) for letter in letters]

    async def generations(self, project: str) -> list[Any]:
        if self.contents.failing:
            raise _DOWN
        return self.contents.generations

    async def start_replay(self, project: str, **options: Any) -> Any:
        self.contents.done.append(("replay", project, options))
        if options.get("dry_run"):
            return SimpleNamespace(
                documents=12,
                chunks=90,
                reused=60,
                embedded=30,
                tokens=4_200,
                cost_usd=None,
                seconds=2.5,
                refused=0,
            )
        return self.contents.replay

    async def replay(self, replay_id: str) -> Any:
        return self.contents.replay

    async def replays(self) -> list[Any]:
        return [self.contents.replay] if self.contents.replay else []

    async def stop_replay(self, replay_id: str) -> Any:
        self.contents.done.append(("stop", replay_id))

    async def switch(self, project: str, generation: int) -> Any:
        self.contents.done.append(("switch", project, generation))
        return self.contents.replay

    async def rollback(self, project: str) -> Any:
        self.contents.done.append(("rollback", project))
        return self.contents.replay

    async def drop_generation(self, project: str, generation: int) -> Any:
        self.contents.done.append(("drop", project, generation))
        return self.contents.replay

    async def evaluations(self, project: str) -> list[Any]:
        if self.contents.failing:
            raise _DOWN
        return self.contents.evaluations

    async def evaluation(self, evaluation_id: str) -> Any:
        for evaluation in self.contents.evaluations:
            if str(evaluation.id) == evaluation_id:
                return evaluation
        raise NotFound(f"there is no evaluation {evaluation_id!r}")


def _document(uri: str, text: str) -> DocumentRow:
    return DocumentRow(
        uri=uri,
        agent=None,
        kind="code" if uri.endswith(".py") else "markdown",
        title=f"Title of {uri}",
        lines=text.count("\n"),
        chunks=2,
        tokens=240,
        pending=0,
        content_hash="ab" * 32,
        commit="0123456789abcdef",
        collections=("guides",),
        metadata={"author": "Ada", "home": "https://example.org/x", "bad": "javascript:alert(1)"},
        source="repo",
        media_type=None,
        event_id="e1",
        token=_POSITION,
        published_at=_NOW,
        updated_at=_NOW,
    )


def _result(number: int, uri: str, text: str) -> SearchResult:
    content = text.rstrip("\n")
    return SearchResult(
        chunk_id=number,
        content=content,
        kind=Kind.CODE if uri.endswith(".py") else Kind.MARKDOWN,
        title=f"Title of {uri}",
        citation=Citation(
            uri=uri,
            start_line=1,
            end_line=content.count("\n") + 1,
            symbol="Connection.connect" if uri.endswith(".py") else None,
            heading_path=() if uri.endswith(".py") else ("Retries",),
            permalink=f"https://example.org/{number}" if number == 1 else "javascript:alert(2)",
        ),
        scores=Scores(
            vector=RetrieverScore(rank=number, score=0.83 / number),
            keyword=RetrieverScore(rank=number, score=11.2 / number),
            fused=1.0 / number,
        ),
        match_type="hybrid",
    )


def _source() -> Any:
    return SimpleNamespace(
        name="repo",
        kind="git",
        location="/srv/repo",
        uri_prefix="",
        documents=1_187,
        commit="0123456789abcdef",
        synced_at=_NOW,
        batch=SimpleNamespace(
            id="b1",
            found=1_200,
            skipped_count=13,
            skipped=[
                SimpleNamespace(reason="binary", count=12, files=("a.png", "b.png")),
                SimpleNamespace(reason="too large", count=1, files=("data.json",)),
            ],
        ),
    )


def _letter(number: int) -> Any:
    return SimpleNamespace(
        id=f"document.changed.live/0/{number}-0",
        topic="document.changed.live",
        project="default",
        error="MalformedEvent" if number == 1 else "LimitExceeded",
        detail="document.changed: data.uri: Field required"
        if number == 1
        else "the document has 3,000,001 characters; at most 2,000,000 are allowed",
        attempts=number,
        first_at=_NOW,
        last_at=_NOW,
        event={"type": "document.changed", "data": {"uri": "docs/<b>x</b>.md"}},
        raw="",
    )


def _generation(number: int, state: str) -> Any:
    return SimpleNamespace(
        id=number,
        state=state,
        model=f"local/hash-{number}",
        models={},
        chunking="1",
        documents=1_187,
        chunks=9_120,
        created_at=_NOW,
        switched_at=_NOW,
        droppable_at=None if state == "live" else _NOW,
    )


def _evaluation(number: int, score: float) -> Any:
    questions = [
        SimpleNamespace(
            id=f"q{at}",
            text=f"question {at}",
            ndcg=max(0.0, score - at / 20),
            uris=[f"{number}.md"],
        )
        for at in range(6)
    ]
    return SimpleNamespace(
        id=str(number),
        set_name="scifact",
        mode="hybrid",
        generation=number,
        created_at=_NOW + timedelta(days=number),
        scores={"ndcg@10": score, "recall@10": score + 0.1, "mrr@10": score - 0.05},
        questions=questions,
    )


def _point(minute: int) -> Any:
    return SimpleNamespace(
        at=_NOW - timedelta(minutes=60 - minute),
        queue_depth=float(minute % 17),
        freshness_p50_ms=40.0 + minute % 7,
        freshness_p99_ms=180.0 + 3 * (minute % 11),
        changes_per_s=2.0 + minute % 5,
        questions_per_s=0.5,
        redis_memory_bytes=(40 + minute % 3) * 2**20,
    )
