"""Pages on a free port of this machine, with contents that a test chooses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.middleware import Middleware

from events.models import (
    Citation,
    ExactCounts,
    Judgement,
    Kind,
    OtherMatch,
    QueryAnswer,
    RetrieverScore,
    Scores,
    SearchResult,
    SourceLines,
)
from events.replays import Questions, ReplayState
from events.streams.letter_selection import LetterCount, LetterOutcome
from gateway.auth.callers import Caller, Right
from gateway.auth.sessions import Session, Sessions
from gateway.http.connections import server_config
from gateway.http.middleware import Guard
from gateway.knowledge import Knowledge, Question
from gateway.operations.history import HistoryPoint
from gateway.operations.letters import Letter
from gateway.operations.operations import GenerationRow, Operations, ReplayPlan
from gateway.web.pages import pages
from gateway.web.visits import Site
from runtime.errors import Conflict, NotFound, Unauthenticated, Unavailable
from store.generations.catalog import GenerationState, Recipe
from store.generations.evaluations import Evaluation, EvaluationRow, QuestionScore
from store.views.batches import Batch, Batches, BatchProgress, RejectedChange, SkippedFiles
from store.views.listing import (
    ChangeRow,
    ChunkRow,
    CollectionRow,
    DocumentRow,
    Lines,
    Listing,
    ProjectRow,
    SourceRow,
)

__all__ = ["API_KEY", "COOKIE", "FORM_VALUE", "Contents", "served"]

API_KEY = "hr_12345678_secret"
_POSITION = "live:0:1-0"
COOKIE = "hrs_0123456789"
FORM_VALUE = Session(Caller("12345678", None, None, frozenset()), COOKIE).csrf_token
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
    sources: list[SourceRow] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    generations: list[GenerationRow] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    history: list[HistoryPoint] = field(default_factory=list)
    batch: BatchProgress | None = None
    replay: ReplayState | None = None
    unhandled: bool = False
    done: list[tuple[Any, ...]] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)
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
            batch=BatchProgress(
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
                began_at=_NOW,
                ended_at=None,
            ),
            replay=ReplayState(
                id="r1",
                project="default",
                began_at=_NOW,
                stage="build",
                done=420,
                total=1000,
                rate_per_s=115.0,
                seconds_left=5.0,
                questions=Questions(answered=12),
            ),
        )

    @classmethod
    def empty(cls) -> Contents:
        """A deployment without any document."""
        return cls(texts={})

    def open_session(self) -> Session:
        """Open the session whose cookie is ``COOKIE``."""
        rights = set(Right) if self.operator else {Right.ASK, Right.READ}
        caller = Caller("12345678", None, None, frozenset(rights))
        self.sessions[COOKIE] = Session(caller, COOKIE)
        return self.sessions[COOKIE]

    def advance_batch(self, **numbers: Any) -> None:
        """Change numbers of the batch."""
        assert self.batch is not None
        self.batch = replace(self.batch, **numbers)

    def advance_replay(self, **fields: Any) -> None:
        """Change fields of the replay."""
        self.replay = self.running_replay.model_copy(update=fields)

    @property
    def running_replay(self) -> ReplayState:
        """The replay, which must be there."""
        assert self.replay is not None
        return self.replay


@contextmanager
def served(contents: Contents, listener: socket.socket | None = None) -> Iterator[str]:
    """Serve the pages on a free port or, one after the other, on that of ``listener``.

    Returns their address.
    """
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
    server = uvicorn.Server(server_config(application, lifespan="off"))
    with listener.dup() if listener else socket.create_server(("127.0.0.1", 0)) as own:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [own]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{own.getsockname()[1]}"
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join()


class _Sessions(Sessions):
    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    async def redeem(self, ticket: str) -> Session:
        if ticket != "right":
            raise Unauthenticated("the link was used before, or is too old", "print another")
        return await self.open_session(API_KEY)

    async def open_session(self, api_key: str, address: str = "") -> Session:
        if api_key != API_KEY:
            raise Unauthenticated("the API key is not valid", "check it")
        return self.contents.open_session()

    async def find(self, cookie: str) -> Session:
        if cookie not in self.contents.sessions:
            raise Unauthenticated("the session has ended", "log in again")
        return self.contents.sessions[cookie]

    async def end(self, cookie: str) -> None:
        self.contents.sessions.pop(cookie, None)


class _Knowledge(Knowledge):
    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    async def ask(self, caller: Caller, project: str, question: Question) -> QueryAnswer:
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
            exact=ExactCounts(matches=1, files=1) if "symbol:" in question.text else None,
        )

    async def judge(
        self, caller: Caller, project: str, judgement: Judgement, event_id: str | None = None
    ) -> str:
        self.check()
        self.contents.done.append(("judge", project, judgement.chunk_id, judgement.verdict))
        return event_id or "e1"

    def reading(self, caller: Caller, project: str | None = None) -> _Listing:
        self.check()
        return _Listing(self.contents)

    def check(self) -> None:
        if self.contents.failing:
            raise _DOWN


class _Listing(Listing):
    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    async def projects(self) -> list[ProjectRow]:
        size = len(self.contents.texts)
        return [
            ProjectRow(name, size, size, 0, {}, 2, Recipe("local/hash-384"), 41.0, 220.0)
            for name in ("default", "notes")
        ]

    async def documents(
        self, project: str, agent: str | None, **conditions: Any
    ) -> list[DocumentRow]:
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

    async def chunks(
        self, project: str, agent: str | None, uri: str, **page: int
    ) -> list[ChunkRow]:
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

    async def sources(self, project: str, agent: str | None = None) -> list[SourceRow]:
        return self.contents.sources

    async def change(self, project: str, token: str, agent: str | None = None) -> ChangeRow | None:
        if self.contents.unhandled:
            return None
        [change] = await self.changes(project, None)
        return change

    async def changes(self, project: str, agent: str | None, **conditions: Any) -> list[ChangeRow]:
        batch = self.contents.batch
        if conditions.get("state") == "rejected" and batch is not None and not batch.rejected:
            return []
        return [
            ChangeRow(
                token=_POSITION,
                event_id="e1",
                uri=conditions.get("uri") or "docs/broken.md",
                agent="",
                state=conditions.get("state") or "indexed",
                published_at=_NOW - timedelta(seconds=1),
                handled_at=_NOW,
                detail="",
                batch=None,
            )
        ]

    def _text(self, uri: str) -> str:
        if uri not in self.contents.texts:
            raise NotFound(f"default has no document {uri!r}", "`headrace document list` lists all")
        return self.contents.texts[uri]


class _Batches(Batches):
    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    async def progress(self, project: str, batch: str) -> BatchProgress:
        if self.contents.batch is None:
            raise NotFound(f"there is no batch {batch!r}")
        return self.contents.batch

    async def rejected(self, project: str, batch: str, **page: Any) -> list[RejectedChange]:
        return [RejectedChange(_POSITION, "e1", "docs/broken.md", "content is not UTF-8", _NOW)]


class _Operations(Operations):
    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    async def status(self) -> dict[str, Any]:
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

    async def history(self, minutes: int = 120) -> list[HistoryPoint]:
        return self.contents.history

    async def dead_letter_counts(self) -> list[LetterCount]:
        if self.contents.failing:
            raise _DOWN
        counts: dict[tuple[str, str, str], int] = {}
        for letter in self.contents.letters:
            key = letter.topic, letter.error, letter.project
            counts[key] = counts.get(key, 0) + 1
        return [
            LetterCount(topic, error, project, count, _NOW, _NOW)
            for (topic, error, project), count in counts.items()
        ]

    async def dead_letters(self, **conditions: Any) -> list[Letter]:
        if self.contents.failing:
            raise _DOWN
        return [
            letter
            for letter in self.contents.letters
            if conditions.get("error") in (None, letter.error)
        ]

    async def dead_letter(self, letter_id: str) -> Letter:
        for letter in self.contents.letters:
            if letter.id == letter_id:
                return letter
        raise NotFound(f"there is no dead letter {letter_id!r}", "list them")

    async def redrive(self, ids: Sequence[str] | None = None, **chosen: Any) -> list[LetterOutcome]:
        return self._remove("redrive", ids, **chosen)

    async def drop(self, ids: Sequence[str] | None = None, **chosen: Any) -> list[LetterOutcome]:
        return self._remove("drop", ids, **chosen)

    def _remove(
        self,
        action: str,
        ids: Sequence[str] | None,
        count: int | None = None,
        filter: Mapping[str, str] | None = None,  # noqa: A002 - a name of the real method
    ) -> list[LetterOutcome]:
        error = (filter or {}).get("error")
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

    async def generations(self, project: str) -> list[GenerationRow]:
        if self.contents.failing:
            raise _DOWN
        return self.contents.generations

    async def start_replay(self, project: str, **options: Any) -> ReplayState | ReplayPlan:
        self.contents.done.append(("replay", project, options))
        if options.get("dry_run"):
            return ReplayPlan(
                project=project,
                documents=12,
                chunks=90,
                reused=60,
                embedded=30,
                tokens=4_200,
                cost_usd=None,
                seconds=2.5,
                refused=0,
            )
        return self.contents.running_replay

    async def replay(self, replay_id: str) -> ReplayState:
        return self.contents.running_replay

    async def replays(self) -> list[ReplayState]:
        return [self.contents.replay] if self.contents.replay else []

    async def stop_replay(self, replay_id: str) -> ReplayState:
        self.contents.done.append(("stop", replay_id))
        self.contents.advance_replay(state="stopped")
        return self.contents.running_replay

    async def switch(self, project: str, generation: int) -> ReplayState:
        self.contents.done.append(("switch", project, generation))
        return self.contents.running_replay

    async def rollback(self, project: str) -> ReplayState:
        self.contents.done.append(("rollback", project))
        return self.contents.running_replay

    async def drop_generation(self, project: str, generation: int) -> ReplayState:
        self.contents.done.append(("drop", project, generation))
        return self.contents.running_replay

    async def evaluations(self, project: str) -> list[EvaluationRow]:
        if self.contents.failing:
            raise _DOWN
        return [_row(evaluation) for evaluation in self.contents.evaluations]

    async def evaluation(self, evaluation_id: str) -> Evaluation:
        for evaluation in self.contents.evaluations:
            if evaluation.id == evaluation_id:
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
        definition=(SourceLines(start_line=1, text="class Connection:"),) if number == 1 else None,
        other_matches=(
            OtherMatch(chunk_id=99, start_line=3, end_line=4, symbol="Connection.close", score=0.1),
        ),
    )


def _source() -> SourceRow:
    skipped = (
        SkippedFiles("binary", 12, ("a.png", "b.png")),
        SkippedFiles("too large", 1, ("data.json",)),
    )
    return SourceRow(
        id="s1",
        name="repo",
        kind="git",
        location="/srv/repo",
        uri_prefix="",
        documents=1_187,
        commit="0123456789abcdef",
        synced_at=_NOW,
        batch=Batch("b1", "process 1 on host", 1_200, skipped, 1_187, _NOW, None),
    )


def _letter(number: int) -> Letter:
    return Letter(
        id=f"document.changed.live/0/{number}-0",
        topic="document.changed.live",
        partition=0,
        entry_id=f"{number}-0",
        group="indexer",
        project="default",
        uri="docs/<b>x</b>.md",
        token=_POSITION,
        error="MalformedEvent" if number == 1 else "LimitExceeded",
        detail="document.changed: data.uri: is missing"
        if number == 1
        else "the document has 3,000,001 characters; at most 2,000,000 are allowed",
        attempts=number,
        first_at=_NOW,
        last_at=_NOW,
        event={"type": "document.changed", "data": {"uri": "docs/<b>x</b>.md"}},
        raw="",
    )


def _generation(number: int, state: GenerationState) -> GenerationRow:
    return GenerationRow(
        project="default",
        id=number,
        state=state,
        model=f"local/hash-{number}",
        models={},
        chunking="1",
        tokens=1,
        scope={},
        documents=1_187,
        chunks=9_120,
        created_at=_NOW,
        switched_at=_NOW,
        droppable_at=None if state == "live" else _NOW,
        report={},
    )


def _evaluation(number: int, score: float) -> Evaluation:
    questions = [
        QuestionScore(
            id=f"q{at}",
            text=f"question {at}",
            ndcg=max(0.0, score - at / 20),
            recall=1.0,
            mrr=1.0,
            uris=[f"{number}.md"],
        )
        for at in range(6)
    ]
    return Evaluation(
        id=str(number),
        project="default",
        set_name="scifact",
        mode="hybrid",
        generation=number,
        model="local/hash-384",
        chunking="1",
        scores={"ndcg@10": score, "recall@10": score + 0.1, "mrr@10": score - 0.05},
        questions=questions,
        created_at=_NOW + timedelta(days=number),
    )


def _row(evaluation: Evaluation) -> EvaluationRow:
    fields = {name: getattr(evaluation, name) for name in EvaluationRow.__slots__}
    return EvaluationRow(**fields | {"questions": len(evaluation.questions)})


def _point(minute: int) -> HistoryPoint:
    return HistoryPoint(
        at=_NOW - timedelta(minutes=60 - minute),
        queue_depth=minute % 17,
        freshness_p50_ms=40.0 + minute % 7,
        freshness_p99_ms=180.0 + 3 * (minute % 11),
        changes_per_s=2.0 + minute % 5,
        questions_per_s=0.5,
        redis_memory_bytes=(40 + minute % 3) * 2**20,
    )
