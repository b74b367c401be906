"""Table of the pages, and the checks that every request passes."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal
from urllib.parse import urlsplit

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gateway.auth.callers import Right
from gateway.web import (
    documents,
    evaluations,
    generations,
    questions,
    sources,
    streams,
)
from gateway.web.presentation import (
    accepted_coding,
    compressed_file,
    compressed_page,
    environment,
    static_files,
)
from gateway.web.visits import Problem, Site, Visit, read_form
from runtime.errors import Forbidden, HeadraceError, Unauthenticated, UnknownProject

__all__ = ["CONTENT_SECURITY_POLICY", "pages"]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # with no-referrer, browsers send `Origin: null` with the forms of these very pages
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_COOKIE = "__Host-headrace"
_SESSION_SECONDS = 12 * 3600
_YEAR_SECONDS = 365 * 86_400
_LONG_BYTES = 1_400
"""Size from which compression saves a packet."""

Handler = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _Page:
    method: Literal["GET", "POST"]
    path: str
    right: Right
    handler: Handler


_PAGES: Sequence[_Page] = (
    _Page("GET", "/ask", Right.ASK, questions.show),
    _Page("POST", "/ask/judge", Right.ASK, questions.judge),
    _Page("GET", "/documents", Right.READ, documents.show_list),
    _Page("GET", "/document", Right.READ, documents.show_document),
    _Page("GET", "/sources", Right.READ, sources.show),
    _Page("GET", "/batch", Right.READ, sources.show_batch),
    _Page("GET", "/streams", Right.OPERATE, streams.show),
    _Page("GET", "/dead-letters", Right.OPERATE, streams.show_letters),
    _Page("GET", "/dead-letter", Right.OPERATE, streams.show_letter),
    _Page("POST", "/dead-letters/confirm", Right.OPERATE, streams.confirm),
    _Page("POST", "/dead-letters/apply", Right.OPERATE, streams.apply),
    _Page("GET", "/dead-letters/outcomes", Right.OPERATE, streams.show_outcomes),
    _Page("GET", "/generations", Right.OPERATE, generations.show),
    _Page("POST", "/generations/replay", Right.OPERATE, generations.replay),
    _Page("POST", "/generations/stop", Right.OPERATE, generations.stop),
    _Page("POST", "/generations/change", Right.OPERATE, generations.change),
    _Page("GET", "/evaluations", Right.OPERATE, evaluations.show),
    _Page("GET", "/evaluation", Right.OPERATE, evaluations.compare),
)


def pages(site: Site) -> APIRouter:
    """Routes of all pages, of login and logout, and of the files that they load."""
    router = APIRouter(include_in_schema=False)
    for page in _PAGES:
        router.add_route(page.path, _endpoint(site, page), methods=[page.method])
    doors: Mapping[tuple[str, str], Callable[[Site, Request], Awaitable[Response]]] = {
        ("GET", "/"): _start,
        ("GET", "/login"): _login_page,
        ("POST", "/login"): _log_in,
        ("POST", "/logout"): _log_out,
        ("GET", "/static/{name:path}"): _static,
        ("GET", "/favicon.ico"): _favicon,
    }
    for (method, path), handler in doors.items():
        router.add_route(path, _guarded(site, handler), methods=[method])
    return router


def _endpoint(site: Site, page: _Page) -> Callable[[Request], Awaitable[Response]]:
    """Find the session, check the right and the form, and call the handler."""

    async def respond(site: Site, request: Request) -> Response:
        try:
            session = await site.sessions.find(request.cookies.get(_COOKIE, ""))
        except Unauthenticated:
            return _to_login(request)
        visit = Visit(request, site, session)
        try:
            session.caller.require(page.right)
            if page.method == "POST":
                visit.form = await read_form(request)
                _check_origin(request)
                session.check_form(visit.sent("csrf_token"))
            await visit.open()
            return await page.handler(visit)
        except UnknownProject as error:
            return visit.render_missing_project(error)
        except HeadraceError as error:
            return visit.render_problem(error)

    return _guarded(site, respond)


def _guarded(
    site: Site, handler: Callable[[Site, Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """Add the headers that every reply has, and describe errors outside of a session."""

    async def respond(request: Request) -> Response:
        try:
            response = await handler(site, request)
        except HeadraceError as error:
            response = _render_login(Problem.of(error))
        _compress(request, response)
        response.headers.update(_HEADERS)
        if "Cache-Control" not in response.headers:
            response.headers["Cache-Control"] = "no-store"
        return response

    return respond


def _compress(request: Request, response: Response) -> None:
    """Compress a long page.

    The size of a compressed page could reveal the token of its forms to a site that makes the
    browser load the page with many texts. Here it can't: the cookie is not sent for other sites.
    """
    body = bytes(response.body)
    coding = accepted_coding(request.headers.get("Accept-Encoding", ""))
    if len(body) < _LONG_BYTES or "Content-Encoding" in response.headers or coding is None:
        return
    response.body = compressed_page(body, coding)
    response.headers["Content-Encoding"] = coding
    response.headers["Content-Length"] = str(len(response.body))
    response.headers["Vary"] = "Accept-Encoding"


def _check_origin(request: Request) -> None:
    """Refuse a form of another site, by the browser's own statement.

    Raises:
        Forbidden: the browser names another site, or none at all.
    """
    fetch_site = request.headers.get("Sec-Fetch-Site")
    origin = urlsplit(request.headers.get("Origin", "")).netloc
    if fetch_site == "same-origin":
        return
    if fetch_site is None and origin and origin == request.headers.get("Host"):
        return
    raise Forbidden("the form was sent by another site", "open the page and send it from there")


def _to_login(request: Request) -> Response:
    """Send a browser to the login; a request of htmx must leave the page for it."""
    if "HX-Request" in request.headers:
        return Response(status_code=HTTPStatus.UNAUTHORIZED, headers={"HX-Redirect": "/login"})
    return RedirectResponse("/login", HTTPStatus.SEE_OTHER)


async def _start(site: Site, request: Request) -> Response:
    del site, request
    return RedirectResponse("/ask", HTTPStatus.SEE_OTHER)


async def _login_page(site: Site, request: Request) -> Response:
    del site
    return _render_login(ticket=request.query_params.get("ticket", ""))


def _render_login(problem: Problem | None = None, ticket: str = "") -> Response:
    html = environment().get_template("login.html").render(problem=problem, ticket=ticket)
    return HTMLResponse(html, HTTPStatus.OK if problem is None else problem.status)


async def _log_in(site: Site, request: Request) -> Response:
    """Open a session with a ticket or an API key.

    The ticket is sent by a form and not redeemed by the link itself, because programs that
    preview links would use it up.
    """
    _check_origin(request)
    form = await read_form(request)
    ticket, api_key = ("".join(form.get(name, ())).strip() for name in ("ticket", "api_key"))
    address = "" if request.client is None else request.client.host
    if ticket:
        session = await site.sessions.redeem(ticket)
    elif api_key:
        session = await site.sessions.open_session(api_key, address)
    else:
        raise Unauthenticated("no API key was given", "paste one, or use `headrace open`")
    response = RedirectResponse("/ask", HTTPStatus.SEE_OTHER)
    response.set_cookie(
        _COOKIE, session.cookie, _SESSION_SECONDS, secure=True, httponly=True, samesite="strict"
    )
    return response


async def _log_out(site: Site, request: Request) -> Response:
    _check_origin(request)
    cookie = request.cookies.get(_COOKIE, "")
    with contextlib.suppress(Unauthenticated):
        session = await site.sessions.find(cookie)
        form = await read_form(request)
        session.check_form(next(iter(form.get("csrf_token", ())), ""))
        await site.sessions.end(cookie)
    response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    response.delete_cookie(_COOKIE, secure=True, httponly=True, samesite="strict")
    return response


async def _static(site: Site, request: Request) -> Response:
    del site
    return _file(request, request.path_params["name"])


async def _favicon(site: Site, request: Request) -> Response:
    del site
    return _file(request, "favicon.svg")


def _file(request: Request, name: str) -> Response:
    file = static_files().get(name)
    if file is None:
        return Response("not found", HTTPStatus.NOT_FOUND, media_type="text/plain")
    current = request.query_params.get("v") == file.version
    headers = {
        "Cache-Control": f"public, max-age={_YEAR_SECONDS}, immutable" if current else "no-cache",
        "ETag": f'"{file.version}"',
        "Vary": "Accept-Encoding",
    }
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    content = file.content
    coding = accepted_coding(request.headers.get("Accept-Encoding", ""))
    if coding is not None:
        content, headers["Content-Encoding"] = compressed_file(name, coding), coding
    return Response(content, media_type=file.media_type, headers=headers)
