"""One request of a browser: its caller, project, parameters and reply."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from math import isfinite
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from events.fields import storable
from gateway.auth.callers import Caller, Right
from gateway.auth.sessions import Session, Sessions
from gateway.knowledge import Knowledge
from gateway.operations.operations import Operations
from gateway.web.presentation import address, environment
from runtime import errors
from runtime.errors import (
    Conflict,
    DeadlineExceeded,
    Forbidden,
    HeadraceError,
    LimitExceeded,
    NotFound,
    OperatorError,
    Poison,
    RateLimited,
    Retryable,
    Unauthenticated,
    UnknownProject,
    UsageError,
)
from runtime.intervals import TTLCache
from store.views.batches import Batches
from store.views.listing import ChangeRow, CollectionRow, Listing, ProjectRow

__all__ = ["SCREENS", "Problem", "Screen", "Site", "Visit", "read_form", "status_of"]

T = TypeVar("T")

_REMEMBERED_SECONDS = 5.0
_FORM_BYTES = 256 * 1024
_FORM_FIELDS = 1_000
_PROJECT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_STATUS: Sequence[tuple[type[HeadraceError], int]] = (
    (Unauthenticated, HTTPStatus.UNAUTHORIZED),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (LimitExceeded, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (RateLimited, HTTPStatus.TOO_MANY_REQUESTS),
    (DeadlineExceeded, HTTPStatus.GATEWAY_TIMEOUT),
    (Retryable, HTTPStatus.SERVICE_UNAVAILABLE),
    (UsageError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (Poison, HTTPStatus.UNPROCESSABLE_ENTITY),
    (OperatorError, HTTPStatus.SERVICE_UNAVAILABLE),
)


@dataclass(frozen=True, slots=True)
class Screen:
    """Entry of the navigation. ``key`` follows ``g`` on the keyboard."""

    path: str
    title: str
    key: str
    right: Right
    operator: bool = False


SCREENS: Sequence[Screen] = (
    Screen("/ask", "Ask", "a", Right.ASK),
    Screen("/documents", "Documents", "d", Right.READ),
    Screen("/sources", "Sources", "s", Right.READ),
    Screen("/streams", "Streams", "q", Right.OPERATE, operator=True),
    Screen("/dead-letters", "Dead letters", "l", Right.OPERATE, operator=True),
    Screen("/generations", "Generations", "n", Right.OPERATE, operator=True),
    Screen("/evaluations", "Evaluations", "v", Right.OPERATE, operator=True),
)


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as a page shows it: what happened, and the remedy."""

    code: str
    message: str
    remedy: str
    status: int

    @classmethod
    def of(cls, error: HeadraceError) -> Problem:
        """Describe an error."""
        return cls(error.code, error.message, error.remedy, status_of(error))


def status_of(error: HeadraceError) -> int:
    """HTTP status of an error; that of a question's reply has the code of the worker's error."""
    raised = getattr(errors, error.code, type(error))
    kinds = (status for kind, status in _STATUS if issubclass(raised, kind))
    return next(kinds, HTTPStatus.INTERNAL_SERVER_ERROR)


@dataclass(frozen=True)
class Site:
    """Everything that the pages use.

    ``operations`` is None in a process without ``--operator``. ``remembered`` keeps what the frame
    of every page shows, for a few seconds.
    """

    sessions: Sessions
    knowledge: Knowledge
    batches: Batches
    operations: Operations | None = None
    remembered: TTLCache[tuple[str, ...], Sequence[object]] = field(
        default_factory=lambda: TTLCache(_REMEMBERED_SECONDS)
    )


@dataclass
class Visit:
    """One request of a logged-in browser, and everything that its handler needs."""

    request: Request
    site: Site
    session: Session
    form: Mapping[str, Sequence[str]] = field(default_factory=dict)
    projects: Sequence[ProjectRow] = ()
    project: str = ""
    warnings: Sequence[str] = ()

    @property
    def caller(self) -> Caller:
        """Caller of the session."""
        return self.session.caller

    @property
    def listing(self) -> Listing:
        """Listing of the documents that the caller may read."""
        return self.site.knowledge.reading(self.caller, self.project)

    @property
    def batches(self) -> Batches:
        """Progress of the batches that the caller may read."""
        self.site.knowledge.reading(self.caller, self.project)
        return self.site.batches

    async def changes(self, **conditions: Any) -> Sequence[ChangeRow]:
        """Changes of the project from the ledger, newest first."""
        return await self.listing.changes(self.project, self.caller.agent, **conditions)

    @property
    def operations(self) -> Operations:
        """Operations of this process.

        Raises:
            NotFound: the process was started without ``--operator``.
        """
        if self.site.operations is None:
            raise NotFound(
                "this gateway has no operator's pages", "start it with `headrace serve --operator`"
            )
        self.caller.require(Right.OPERATE)
        return self.site.operations

    def parameter(self, name: str, default: str = "") -> str:
        """Value of a parameter of the address, without blanks around it."""
        return self.request.query_params.get(name, default).strip()

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """Parameter as a number within limits. A wrong one counts as ``default``."""
        try:
            value = float(self.parameter(name) or default)
        except ValueError:
            return default
        return min(high, max(low, value)) if isfinite(value) else default

    def sent(self, name: str) -> str:
        """First value of a field of the form, without blanks around it."""
        return next(iter(self.form.get(name, ())), "").strip()

    async def open(self) -> None:
        """Read the projects of the caller, and choose the one that the address names.

        Raises:
            UnknownProject: the caller may not see it.
            UsageError: the address or the form has a text that Postgres can't hold.
        """
        named = self.parameter("project") or self.sent("project")
        if named:
            self.project = self.caller.scope(named) if _PROJECT.fullmatch(named) else "default"
        self.projects = await self.remembered("projects", self._read_projects)
        names = [row.project for row in self.projects]
        self.project = self.project or self.caller.project or next(iter(names), "default")
        if self.site.operations is not None and Right.OPERATE in self.caller.rights:
            self.warnings = await self.remembered("warnings", self._read_warnings)
        self._check_texts()

    def _check_texts(self) -> None:
        sent = ((name, text) for name, texts in self.form.items() for text in texts)
        for name, text in (*self.request.query_params.multi_items(), *sent):
            try:
                storable(text)
            except ValueError as error:
                raise UsageError(f"{name[:80]}: {error}", "go back, and correct it") from None

    async def remembered(
        self, name: str, read: Callable[[], Awaitable[Sequence[T]]]
    ) -> Sequence[T]:
        """Return what was read for this caller and project in the last seconds, or read it.

        The frame of every page needs it, also while a question is typed. A server that can't be
        reached costs no page: the result is empty then.
        """
        key = (name, self.caller.key_id, self.project)
        kept = cast("Sequence[T] | None", self.site.remembered.get(key))
        if kept is None:
            try:
                kept = await read()
            except HeadraceError:
                kept = ()
            self.site.remembered.put(key, kept)
        return kept

    async def read_collections(self) -> Sequence[CollectionRow]:
        """Collections of the project."""
        return await self.listing.collections(self.project, self.caller.agent)

    async def _read_projects(self) -> Sequence[ProjectRow]:
        listing = self.site.knowledge.reading(self.caller)
        if self.caller.project is None:
            return await listing.projects()
        return [await listing.project(self.caller.project, self.caller.agent)]

    async def _read_warnings(self) -> Sequence[str]:
        status = await self.site.operations.status() if self.site.operations else {}
        warnings: Sequence[str] = status.get("warnings", ())
        return warnings

    def render(self, template: str, status: int = HTTPStatus.OK, /, **values: Any) -> Response:
        """Page from a template, inside the frame of all pages."""
        operator = self.site.operations is not None
        screens = [
            screen
            for screen in SCREENS
            if screen.right in self.caller.rights and (operator or not screen.operator)
        ]
        frame = {
            "screens": screens,
            "path": self.request.url.path,
            "project": self.project,
            "projects": sorted({row.project for row in self.projects} | {self.project}),
            "caller": self.caller,
            "csrf_token": self.session.csrf_token,
            "warnings": self.warnings,
            "query": "",
        }
        html = environment().get_template(template).render(frame | values)
        return HTMLResponse(html, status)

    def render_problem(self, error: HeadraceError) -> Response:
        """Page that describes an error.

        A part of a page that is read again every few seconds recovers when its reading does.
        """
        problem = Problem.of(error)
        is_part = "HX-Request" in self.request.headers and self.request.method == "GET"
        retry = f"{self.request.url.path}?{self.request.url.query}" if is_part else None
        return self.render("problem.html", problem.status, problem=problem, retry=retry)

    def render_missing_project(self, error: UnknownProject) -> Response:
        """Page about a project that does not exist, as in a new deployment, or is hidden."""
        titles = {screen.path: screen.title for screen in SCREENS}
        return self.render(
            "project_missing.html",
            status_of(error),
            problem=Problem.of(error),
            title=titles.get(self.request.url.path, "No such project"),
        )

    def redirect(self, path: str, **parameters: Any) -> Response:
        """Send the browser to another page, by GET."""
        return RedirectResponse(address(path, **parameters), HTTPStatus.SEE_OTHER)


async def read_form(request: Request) -> dict[str, list[str]]:
    """Fields of a form.

    Raises:
        LimitExceeded: it is larger than any form of these pages.
        UsageError: it is not a form.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _FORM_BYTES:
            raise LimitExceeded(f"a form has at most {_FORM_BYTES:,} bytes")
    fields: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=_FORM_FIELDS, errors="strict"
        )
    except ValueError:
        raise UsageError("the body is not a form of this page") from None
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields
