"""Operations behind the tools, for one caller: in this process or, in ``remote``, over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from gateway.mcp import tools

if TYPE_CHECKING:  # `tools/list` must not wait for these imports
    from events.models import QueryAnswer
    from gateway.auth.callers import Caller
    from gateway.knowledge import Knowledge, Question
    from store.views.listing import DocumentRow

__all__ = [
    "NOT_HERE",
    "Access",
    "Backend",
    "Change",
    "Document",
    "KnowledgeBackend",
    "Page",
    "Progress",
    "ProjectStatus",
    "Refreshed",
    "Text",
    "access_of",
]

_ARGUMENTS = {"text": "query", "uri_prefix": "under", "path_globs": "paths"}
"""Arguments of the tool ``search`` whose name is not that of the field of a question."""
OUTCOME_WAIT = timedelta(seconds=8)
"""Longest wait for the outcome of a change. Hosts end tools that take much longer."""


@dataclass(frozen=True, slots=True)
class Text:
    """Lines ``first`` to ``last`` of a document, whose last line is ``total``."""

    text: str
    first: int
    last: int
    total: int


@dataclass(frozen=True, slots=True)
class Document:
    """Row of a list of documents."""

    uri: str
    kind: str
    title: str | None
    lines: int
    updated_at: str


@dataclass(frozen=True, slots=True)
class Page:
    """Documents by uri. ``next`` is the value of ``after`` for the next page, or None."""

    documents: list[Document]
    next: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """State of a change: waiting, indexed, superseded, duplicate or rejected."""

    token: str
    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProjectStatus:
    """Size and freshness of a project's live index.

    ``pending`` chunks have no vector yet. Freshness is the time from publish to searchable, in ms.
    """

    project: str
    documents: int
    chunks: int
    pending: int
    kinds: Mapping[str, int]
    generation: int
    model: str
    freshness_p50_ms: float | None
    freshness_p99_ms: float | None


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Result of a refresh: the token to wait for, or None, and reasons why it is incomplete."""

    token: str | None = None
    notes: tuple[str, ...] = ()


NOT_HERE = Refreshed(notes=("this server does not read the files of the sources",))
"""Refresh of a backend that is not on the machine of the sources, as far as it knows."""

Refresh = Callable[[str], Awaitable[Refreshed]]
"""Syncs the sources of a project that this machine has."""


class Backend(Protocol):
    """Operations that the tools call. Each raises HeadraceError if it fails."""

    async def refresh(self, project: str) -> Refreshed:
        """Sync what has changed in the sources of this machine, for a short time."""

    async def search(self, search: tools.Search) -> QueryAnswer:
        """Return the answer to a question."""

    async def read(self, project: str, uri: str, first: int, last: int | None) -> Text:
        """Return lines of a document; ``last`` None is its end."""

    async def document(self, project: str, uri: str) -> Document:
        """Return the row of a document; raises NotFound."""

    async def documents(self, page: tools.List) -> Page:
        """Return a page of documents."""

    async def remember(self, document: tools.Remember) -> Change:
        """Publish a document; wait a little for the outcome."""

    async def forget(self, document: tools.Forget) -> Change:
        """Publish a deletion; wait a little for the outcome."""

    async def status(self, project: str) -> ProjectStatus:
        """Return the size and freshness of a project."""

    async def change(self, project: str, token: str) -> Change:
        """Return the state of a change; raises NotFound."""


Progress = Callable[[str], Awaitable[None]]
"""Receives a line about a long wait."""


@dataclass(frozen=True, slots=True)
class Access:
    """Access of one caller, with a function that opens its backend.

    ``project`` is the only one of the caller, or None if it may choose. Opening may take long: it
    reports its progress. With ``text_only``, results of tools have no structured part.
    """

    project: str | None
    may_publish: bool
    open: Callable[[Progress], Awaitable[Backend]]
    text_only: bool = False


def access_of(caller: Caller, knowledge: Knowledge) -> Access:
    """Access of the holder of an API key."""
    from gateway.auth.callers import Right  # noqa: PLC0415  # see above

    async def opened(_: Progress) -> Backend:
        return KnowledgeBackend(caller, knowledge)

    return Access(caller.project, Right.PUBLISH in caller.rights, opened)


class KnowledgeBackend:
    """The deployment that this process is connected to, for one caller.

    ``refresh`` is None if the caller may be on another machine than the sources. Questions are
    asked, and documents are read, in the overlay if it exists.
    """

    def __init__(
        self,
        caller: Caller,
        knowledge: Knowledge,
        refresh: Refresh | None = None,
        overlay: str | None = None,
    ) -> None:
        self._caller = caller
        self._knowledge = knowledge
        self._refresh = refresh
        self._overlay = overlay

    async def refresh(self, project: str) -> Refreshed:
        """Sync the sources of this machine, if the caller may publish."""
        from gateway.auth.callers import Right  # noqa: PLC0415

        if self._refresh is None:
            return NOT_HERE
        if Right.PUBLISH not in self._caller.rights:
            return Refreshed(notes=("this server may not publish",))
        self._caller.scope(project)
        return await self._refresh(project)

    async def search(self, search: tools.Search) -> QueryAnswer:
        """Ask a question through the streams."""
        question = _question(search)
        if await self._reader(search.project) != self._caller.agent:
            question = question.model_copy(update={"overlay": self._overlay})
        return await self._knowledge.ask(self._caller, search.project, question)

    async def read(self, project: str, uri: str, first: int, last: int | None) -> Text:
        """Read lines from Postgres."""
        listing = self._knowledge.reading(self._caller, project)
        agent = await self._reader(project)
        lines = await listing.lines(project, agent, uri, first=first, last=last)
        return Text(lines.text, lines.first, lines.last, lines.total)

    async def document(self, project: str, uri: str) -> Document:
        """Read the row of a document from Postgres."""
        listing = self._knowledge.reading(self._caller, project)
        return _document(await listing.document(project, await self._reader(project), uri))

    async def documents(self, page: tools.List) -> Page:
        """List documents from Postgres."""
        listing = self._knowledge.reading(self._caller, page.project)
        rows = await listing.documents(
            page.project,
            await self._reader(page.project),
            under=page.under or None,
            kind=page.kind,
            collection=page.collection or None,
            after=page.after or None,
            limit=page.limit + 1,
        )
        listed = rows[: page.limit]
        documents = [_document(row) for row in listed]
        return Page(documents, listed[-1].cursor if len(rows) > page.limit else None)

    async def _reader(self, project: str) -> str | None:
        """Agent that reads: the caller's, in the overlay if the project has it."""
        from runtime.errors import NotFound  # noqa: PLC0415

        agent = self._caller.agent
        if self._overlay is None:
            return agent
        try:
            listing = self._knowledge.reading(self._caller, project)
            return await listing.overlaid(project, agent, self._overlay)
        except NotFound:
            return agent

    async def remember(self, document: tools.Remember) -> Change:
        """Publish a document through the streams."""
        return await self._publish(
            project=document.project,
            uri=document.uri,
            content=document.content,
            title=document.title or None,
            collections=tuple(document.collections),
            agent=self._agent(private=document.private),
        )

    async def forget(self, document: tools.Forget) -> Change:
        """Publish a deletion through the streams."""
        agent = self._agent(private=document.private)
        listing = self._knowledge.reading(self._caller, document.project)
        await listing.document(document.project, agent, document.uri)
        return await self._publish(
            change="delete", project=document.project, uri=document.uri, agent=agent
        )

    async def status(self, project: str) -> ProjectStatus:
        """Read the size of the live generation from Postgres."""
        listing = self._knowledge.reading(self._caller, project)
        row = await listing.project(project, self._caller.agent)
        return ProjectStatus(
            row.project,
            row.documents,
            row.chunks,
            row.pending,
            row.kinds,
            row.generation,
            row.model,
            row.freshness_p50_ms,
            row.freshness_p99_ms,
        )

    async def change(self, project: str, token: str) -> Change:
        """Read the state of a change from the ledger, or from the accepted changes."""
        from runtime.errors import MalformedEvent, UsageError  # noqa: PLC0415

        try:
            change = await self._knowledge.change(self._caller, project, token)
        except MalformedEvent as error:
            raise UsageError(error.message, "use the token that `remember` returned") from None
        return Change(token, change.state, getattr(change, "detail", None) or "")

    def _agent(self, *, private: bool) -> str | None:
        from runtime.errors import UsageError  # noqa: PLC0415

        if private and self._caller.agent is None:
            raise UsageError(
                "this API key has no agent, so it has no private documents",
                "leave `private` out, or use a key with an agent",
            )
        return self._caller.agent if private else None

    async def _publish(self, **fields: object) -> Change:
        from gateway.knowledge import valid_change  # noqa: PLC0415

        change = valid_change(**fields)
        published = await self._knowledge.publish(self._caller, change, wait=OUTCOME_WAIT)
        token, outcome = published.receipt.token, published.outcome
        if outcome is None:
            return Change(token, "waiting")
        problem = getattr(outcome.data, "problem", None)
        if problem is not None:
            return Change(token, "rejected", problem.detail)
        return Change(token, getattr(outcome.data, "outcome", "indexed"))


def _document(row: DocumentRow) -> Document:
    return Document(row.uri, row.kind, row.title, row.lines, row.updated_at.isoformat())


def _question(search: tools.Search) -> Question:
    from pydantic import ValidationError  # noqa: PLC0415

    from events.fields import problem_in_words  # noqa: PLC0415
    from gateway.knowledge import Question  # noqa: PLC0415
    from runtime.errors import UsageError  # noqa: PLC0415

    filters = {
        "kinds": search.kinds,
        "collections": search.collections,
        "uri_prefix": search.under or None,
        "path_globs": search.paths,
        "languages": search.languages,
        "symbols": search.symbols,
        "where": search.where or None,
    }
    fields = {
        **({"text": search.query} if search.query or not search.like else {}),
        "like": search.like or None,
        "limit": search.limit,
        "mode": search.mode,
        "regex": search.regex,
        "after": search.after or None,
        "group": search.group,
        "sections": True,
        "filters": filters,
        "min_event": search.min_event or None,
    }
    try:
        return Question.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        names = [str(part) for part in first["loc"] if part != "filters"]
        where = f"{_ARGUMENTS.get(names[0], names[0])}: " if names else ""
        raise UsageError(f"{where}{problem_in_words(first)}", "correct this argument") from None
