"""Operations behind the tools over HTTP, by a gateway and an API key."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gateway.mcp import tools
from gateway.mcp.backends import (
    NOT_HERE,
    OUTCOME_WAIT,
    Change,
    Document,
    Page,
    ProjectStatus,
    Refreshed,
    Text,
)
from runtime.errors import HeadraceError, Unavailable

if TYPE_CHECKING:
    import httpx2

    from events.models import QueryAnswer

__all__ = ["RemoteBackend", "RemoteError", "open_remote"]

_TIMEOUT_S = 30.0
_OK = 300
_END = 999_999_999
_LINES = re.compile(r"lines (\d+)-(\d+)/(\d+)")


class RemoteError(HeadraceError):
    """An error that the gateway reported, with its code."""

    def __init__(
        self, code: str, message: str, remedy: str = "", retry_after: timedelta | None = None
    ) -> None:
        super().__init__(message, remedy)
        self._code = code
        self.retry_after = retry_after

    @property
    def code(self) -> str:
        """Code of the gateway's problem."""
        return self._code


@asynccontextmanager
async def open_remote(url: str, api_key: str) -> AsyncIterator[RemoteBackend]:
    """Open the backend of the gateway at ``url``. Nothing is sent before the first call."""
    import httpx2  # noqa: PLC0415  # slow, and `tools/list` must not wait for it

    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with httpx2.AsyncClient(
        base_url=url.rstrip("/"), headers=headers, timeout=_TIMEOUT_S
    ) as client:
        yield RemoteBackend(client)


class RemoteBackend:
    """The projects of a gateway that an API key may use."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def refresh(self, project: str) -> Refreshed:
        """Sync nothing: the gateway may be on another machine than the sources."""
        del project
        return NOT_HERE

    async def search(self, search: tools.Search) -> QueryAnswer:
        """Ask a question."""
        from events.models import QueryAnswer  # noqa: PLC0415

        filters: dict[str, Any] = {"kinds": search.kinds, "collections": search.collections}
        if search.under:
            filters["uri_prefix"] = search.under
        # left out if empty: a gateway of a version without them refuses them
        newer = {
            "path_globs": search.paths,
            "languages": search.languages,
            "symbols": search.symbols,
            "where": search.where,
        }
        filters |= {name: values for name, values in newer.items() if values}
        question: dict[str, Any] = {
            **({"text": search.query} if search.query or not search.like else {}),
            "limit": search.limit,
            "mode": search.mode,
            "group": search.group,
            "sections": True,
            "filters": filters,
        }
        question |= {
            name: value
            for name, value in {
                "like": search.like,
                "regex": search.regex,
                "after": search.after,
                "min_event": search.min_event,
            }.items()
            if value
        }
        response = await self._send("POST", _path(search.project, "/ask"), json=question)
        return QueryAnswer.model_validate_json(response.content)

    async def read(self, project: str, uri: str, first: int, last: int | None) -> Text:
        """Read lines of a document."""
        response = await self._send(
            "GET",
            _path(project, "/text"),
            params={"uri": uri, "lines": f"{first}-{last or _END}"},
        )
        start, end, total = _range_of(response)
        lines = response.text.split("\n")[: end - start + 1]
        return Text("\n".join(lines), start, end, total)

    async def document(self, project: str, uri: str) -> Document:
        """Read the row of a document."""
        response = await self._send("GET", _path(project, "/document"), params={"uri": uri})
        return _document_of(response.json())

    async def documents(self, page: tools.List) -> Page:
        """List documents."""
        wanted = {
            "prefix": page.under,
            "kind": page.kind,
            "collection": page.collection,
            "after": page.after,
            "limit": page.limit,
        }
        params = {name: value for name, value in wanted.items() if value}
        listed = (await self._send("GET", _path(page.project, "/documents"), params=params)).json()
        return Page([_document_of(row) for row in listed["items"]], listed.get("next"))

    async def remember(self, document: tools.Remember) -> Change:
        """Publish a document."""
        params: dict[str, Any] = {"uri": document.uri}
        if document.title:
            params["title"] = document.title
        if document.collections:
            params["collection"] = document.collections
        if document.private:
            params["private"] = "true"
        return await self._change("PUT", document.project, params, document.content.encode())

    async def forget(self, document: tools.Forget) -> Change:
        """Publish a deletion."""
        params = {"uri": document.uri} | ({"private": "true"} if document.private else {})
        return await self._change("DELETE", document.project, params, None)

    async def status(self, project: str) -> ProjectStatus:
        """Read the size of a project."""
        row = (await self._send("GET", _path(project))).json()
        return ProjectStatus(
            project,
            int(row["documents"]),
            int(row["chunks"]),
            int(row.get("pending", 0)),
            row.get("kinds", {}),
            int(row["generation"]),
            str(row["recipe"]["model"]),
            row.get("freshness_p50_ms"),
            row.get("freshness_p99_ms"),
        )

    async def change(self, project: str, token: str) -> Change:
        """Read the state of a change."""
        response = await self._send("GET", _path(project, "/change"), params={"token": token})
        return _change_of(response.json())

    async def _change(
        self, method: str, project: str, params: Mapping[str, Any], content: bytes | None
    ) -> Change:
        response = await self._send(
            method,
            _path(project, "/document"),
            params=params,
            content=content,
            headers={"Prefer": f"wait={OUTCOME_WAIT.total_seconds():.0f}"},
        )
        return _change_of(response.json())

    async def _send(self, method: str, path: str, **parts: Any) -> httpx2.Response:
        """Send a request.

        Raises:
            RemoteError: the gateway reported an error.
            Unavailable: the gateway can't be reached, or the response is not of a gateway.
        """
        import httpx2  # noqa: PLC0415

        try:
            response = await self._client.request(method, path, **parts)
        except httpx2.HTTPError as error:
            raise Unavailable(
                f"the gateway {self._client.base_url} does not respond: "
                f"{str(error) or type(error).__name__}",
                "check HEADRACE_URL, and that `headrace serve` or `headrace up` runs there",
            ) from None
        if response.status_code < _OK:
            return response
        problem = _problem(response)
        if problem.get("outcome") == "rejected":
            return response
        retry_after = response.headers.get("retry-after", "")
        raise RemoteError(
            str(problem.get("code", "InvalidResponse")),
            str(problem.get("detail", f"the gateway responded with {response.status_code}")),
            str(problem.get("remedy", "")),
            timedelta(seconds=int(retry_after)) if retry_after.isdigit() else None,
        )


def _problem(response: httpx2.Response) -> Mapping[str, Any]:
    try:
        problem = response.json()
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _range_of(response: httpx2.Response) -> tuple[int, int, int]:
    """First, last and total line of a text; raises Unavailable."""
    match = _LINES.fullmatch(response.headers.get("content-range", ""))
    if match is None:
        raise Unavailable("the gateway sent a text without its lines", "check HEADRACE_URL")
    return int(match[1]), int(match[2]), int(match[3])


def _path(project: str, rest: str = "") -> str:
    return f"/v1/projects/{quote(project, safe='')}{rest}"


def _document_of(row: Mapping[str, Any]) -> Document:
    return Document(row["uri"], row["kind"], row.get("title"), int(row["lines"]), row["updated_at"])


def _change_of(row: Mapping[str, Any]) -> Change:
    state = row.get("outcome") or row.get("state") or "waiting"
    detail = str(row.get("detail") or "") if state == "rejected" else ""
    return Change(str(row["token"]), str(state), detail)
