"""Routes that list and read what is indexed."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from events.models import DocumentKind
from gateway.http.services import CallerOf, KeyedRoute, ServicesOf
from runtime.errors import UnknownProject, UsageError
from store.views.listing import ChunkRow, CollectionRow, DocumentRow, ProjectRow, SourceRow

__all__ = ["router"]

router = APIRouter(prefix="/v1/projects", tags=["documents"], route_class=KeyedRoute)

_LINES = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")

PageSize = Annotated[int, Query(ge=1, le=200)]


class Projects(BaseModel):
    """The projects that the caller may see."""

    items: list[ProjectRow]


class DocumentSelection(BaseModel):
    """Conditions on the documents of a list, and its page."""

    model_config = ConfigDict(extra="forbid")

    prefix: str | None = None
    kind: DocumentKind | None = None
    collection: str | None = None
    source: str | None = None
    after: str | None = None
    limit: PageSize = 50
    count: bool = False


class DocumentPage(BaseModel):
    """One page of documents by uri. ``next`` is the value of ``after`` for the next page."""

    items: list[DocumentRow]
    next: str | None = None
    total: int | None = None


class ChunkPage(BaseModel):
    """One page of the chunks of a document. ``next`` is the value of ``after`` for the next."""

    items: list[ChunkRow]
    next: int | None = None


class Collections(BaseModel):
    """The collections of a project."""

    items: list[CollectionRow]


class SourcesBody(BaseModel):
    """The sources of a project."""

    items: list[SourceRow]


@router.get("")
async def list_projects(caller: CallerOf, services: ServicesOf) -> Projects:
    """List the projects that the API key is valid for."""
    listing = services.knowledge.reading(caller)
    if caller.project is None:
        return Projects(items=await listing.projects())
    try:
        return Projects(items=[await listing.project(caller.project, caller.agent)])
    except UnknownProject:  # the key was made before the first change of its project
        return Projects(items=[])


@router.get("/{project}")
async def show_project(project: str, caller: CallerOf, services: ServicesOf) -> ProjectRow:
    """Show the size, the recipe and the freshness of a project."""
    return await services.knowledge.reading(caller, project).project(project, caller.agent)


@router.get("/{project}/documents")
async def list_documents(
    project: str,
    selection: Annotated[DocumentSelection, Query()],
    caller: CallerOf,
    services: ServicesOf,
) -> DocumentPage:
    """List documents by uri; `count=true` adds the number of all that are selected."""
    listing = services.knowledge.reading(caller, project)
    conditions = {
        "under": selection.prefix,
        "kind": selection.kind,
        "collection": selection.collection,
        "source": selection.source,
    }
    limit = selection.limit
    rows = await listing.documents(
        project, caller.agent, **conditions, after=selection.after, limit=limit + 1
    )
    total = (
        await listing.count_documents(project, caller.agent, **conditions)
        if selection.count
        else None
    )
    page = rows[:limit]
    return DocumentPage(
        items=page, next=page[-1].cursor if len(rows) > limit else None, total=total
    )


@router.get("/{project}/document")
async def show_document(
    project: str, uri: str, caller: CallerOf, services: ServicesOf
) -> DocumentRow:
    """Show one document, without its text."""
    return await services.knowledge.reading(caller, project).document(project, caller.agent, uri)


@router.get("/{project}/text", response_class=Response)
async def read_text(
    request: Request,
    project: str,
    uri: str,
    caller: CallerOf,
    services: ServicesOf,
    lines: Annotated[str | None, Query(examples=["10-40"])] = None,
) -> Response:
    """Read the text of a document, or some of its lines (`lines=10-40`).

    The header `ETag` is the SHA-256 of the whole text. `Content-Range` gives the lines.
    """
    first, last = _line_range(lines)
    listing = services.knowledge.reading(caller, project)
    read = await listing.lines(project, caller.agent, uri, first=first, last=last)
    headers = {"Content-Range": f"lines {read.first}-{read.last}/{read.total}"}
    if read.content_hash is not None:
        headers["ETag"] = f'"{read.content_hash}"'
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
    return Response(read.text + read.ending, headers=headers, media_type="text/plain")


@router.get("/{project}/chunks")
async def list_chunks(
    project: str,
    uri: str,
    caller: CallerOf,
    services: ServicesOf,
    after: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    limit: PageSize = 50,
) -> ChunkPage:
    """List the chunks of a document in their order."""
    listing = services.knowledge.reading(caller, project)
    rows = await listing.chunks(project, caller.agent, uri, after=after, limit=limit + 1)
    page = rows[:limit]
    return ChunkPage(items=page, next=page[-1].number if len(rows) > limit else None)


@router.get("/{project}/collections")
async def list_collections(project: str, caller: CallerOf, services: ServicesOf) -> Collections:
    """List the collections of a project, with the number of documents in each."""
    listing = services.knowledge.reading(caller, project)
    return Collections(items=await listing.collections(project, caller.agent))


@router.get("/{project}/sources")
async def list_sources(project: str, caller: CallerOf, services: ServicesOf) -> SourcesBody:
    """List the sources of a project, with their last sync."""
    listing = services.knowledge.reading(caller, project)
    return SourcesBody(items=await listing.sources(project, caller.agent))


def _line_range(lines: str | None) -> tuple[int, int | None]:
    if lines is None:
        return 1, None
    parts = _LINES.fullmatch(lines)
    if parts is None or not 1 <= int(parts[1]) <= int(parts[2] or parts[1]):
        raise UsageError(f"lines {lines[:40]!r} is not a range", "write it as 10-40, or as 10")
    return int(parts[1]), int(parts[2] or parts[1])
