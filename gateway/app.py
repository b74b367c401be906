"""The application of the gateway: every family of routes, MCP, pages, and what they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.responses import JSONResponse, Response
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from events.spec.asyncapi import asyncapi_document
from gateway.auth.callers import Right
from gateway.http import asking, following, problems, publishing, reading, retrieval
from gateway.http.middleware import Guard, RequestLog, is_loopback
from gateway.http.operations import operation_routes
from gateway.http.services import Services, ServicesOf, caller
from gateway.mcp.backends import Access, access_of
from gateway.mcp.server import mcp_app
from gateway.telemetry import deployment_metrics
from gateway.web.pages import Site, pages
from runtime import metrics
from runtime.errors import UsageError

__all__ = ["create_app"]

_PREFIXES = ("meta.",)
_ROUTERS = (asking.router, publishing.router, following.router, reading.router, retrieval.router)
_process = APIRouter(tags=["process"])


def create_app(services: Services) -> FastAPI:
    """Create the application; it holds no state but that of ``services``."""
    limits = services.settings.gateway
    mcp = mcp_app(lambda request: _access(request, services))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with mcp.running():
            yield

    app = FastAPI(
        lifespan=lifespan,
        title="Headrace",
        version=version("headrace"),
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        dependencies=[Depends(_known_parameters)],
        redirect_slashes=False,
        middleware=[
            Middleware(RequestLog),
            Middleware(
                Guard,
                hosts=limits.hosts,
                origins=limits.origins,
                max_document_bytes=services.settings.max_document_bytes,
            ),
            *_cors(limits.origins),
        ],
    )
    app.state.services = services
    problems.install(app)
    for router in (_process, *_ROUTERS):
        app.include_router(router)
    if services.operations is not None:
        app.include_router(operation_routes(services.operations, caller))
    site = Site(services.sessions, services.knowledge, services.batches, services.operations)
    app.include_router(pages(site))
    app.router.routes.append(Route("/mcp", mcp, include_in_schema=False))
    return app


async def _access(request: Request, services: Services) -> Access:
    return access_of(await caller(request), services.knowledge)


def _cors(origins: tuple[str, ...]) -> list[Middleware]:
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Prefer"],
        )
    ]


@_process.get("/healthz")
async def is_alive() -> dict[str, str]:
    """Respond as long as the process runs."""
    return {"status": "ok"}


@_process.get("/readyz")
async def is_ready(services: ServicesOf) -> JSONResponse:
    """Respond with 200 if Redis, Postgres and an answering worker are there, else with 503."""
    missing = await services.missing_servers()
    body: dict[str, Any] = {"status": "not ready" if missing else "ok", "missing": missing}
    return JSONResponse(body, 503 if missing else 200)


@_process.get("/metrics", response_class=Response)
async def show_metrics(request: Request, services: ServicesOf) -> Response:
    """Show metrics of the deployment and of this process, for Prometheus.

    A client on another machine needs an API key with the right `operate`.
    """
    address = request.client.host if request.client else ""
    if not is_loopback(address):
        (await caller(request)).require(Right.OPERATE)
    accept = request.headers.get("accept", "")
    body = await deployment_metrics(services.deployment, accept)
    return Response(body, media_type=metrics.content_type(accept))


@_process.get("/asyncapi.json")
async def asyncapi() -> dict[str, Any]:
    """Describe the streams of the deployment (AsyncAPI 3.0)."""
    return asyncapi_document()


def _known_parameters(request: Request) -> None:
    """Reject parameters that the route does not have: a typing error must not change an answer.

    Raises:
        UsageError: the query has an unknown parameter.
    """
    route = request.scope["route"]
    names = getattr(route, "headrace_names", None)
    if names is None:
        names = route.headrace_names = frozenset(_names(route.dependant))
    for name in request.query_params:
        if name not in names and not name.startswith(_PREFIXES):
            raise UsageError(
                f"there is no parameter {name[:80]!r}",
                f"use {', '.join(sorted(names))}" if names else "this path has none",
            )


def _names(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        fields = getattr(parameter.field_info.annotation, "model_fields", None)
        if fields is None:
            yield parameter.alias
        else:
            yield from fields
    for dependency in dependant.dependencies:
        yield from _names(dependency)
