"""The application of the gateway: every family of routes, MCP, pages, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from redis.asyncio import Redis
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from events.client.operator_client import OperatorClient
from events.deployment import follow_raises
from events.fields import storable
from events.names import Names
from events.spec.asyncapi import asyncapi_document
from gateway.auth.callers import Right
from gateway.auth.keys import Authenticator
from gateway.auth.rates import Rates
from gateway.auth.sessions import Sessions
from gateway.clients import names_of, open_gateway, open_redis, projects_of
from gateway.http import (
    changes,
    documents,
    manual,
    outcomes,
    problems,
    questions,
    retrieval,
    streams,
)
from gateway.http.hooks import Hooks, hook_routes
from gateway.http.middleware import Guard, RequestLog, is_loopback
from gateway.http.openapi import use_document
from gateway.http.operations import operation_routes
from gateway.http.services import ANY_NAME, Services, ServicesOf, caller
from gateway.knowledge import Knowledge
from gateway.mcp.application import McpApp
from gateway.mcp.backends import Access, access_of
from gateway.operations.operations import Operations
from gateway.telemetry import DeploymentMetrics, declare_build, deployment_metrics
from gateway.web.pages import pages
from gateway.web.visits import Site
from runtime import metrics
from runtime.errors import ConfigurationError, HeadraceError, UsageError
from runtime.settings import Settings
from store.keys.api_keys import ApiKeys
from store.postgres.pool import Database
from store.views.batches import Batches
from store.views.listing import Listing

__all__ = ["create_app", "open_services", "openapi_document"]

_ALIVE = timedelta(seconds=10)
_ANSWERER = "answerer"
_CHECK_SECONDS = 3
_ROUTERS = (
    streams.router,
    questions.router,
    changes.router,
    outcomes.router,
    documents.router,
    retrieval.router,
)
_process = APIRouter(tags=["process"])


@asynccontextmanager
async def open_services(settings: Settings, *, operator: bool = False) -> AsyncIterator[Services]:
    """Open the parts of a gateway, with ``operator`` also those of an operator.

    Raises:
        ConfigurationError: no database is configured, so that no API key can be checked.
        Unavailable: Redis or Postgres can't be reached.
    """
    if not settings.database_url:
        raise ConfigurationError(
            "the gateway checks API keys in Postgres", "set HEADRACE_DATABASE_URL"
        )
    declare_build()
    async with (
        open_gateway(settings) as (client, database),
        open_redis(settings) as redis,
        _operations(settings, client.names, operator=operator) as operations,
        _hooks(settings, redis) as hooks,
        _following_raises(redis, client.names),
    ):

        async def missing_servers() -> list[str]:
            return await _missing_servers(client, database)

        rates = Rates(redis, client.names)
        authenticator = Authenticator(ApiKeys(database), rates)
        batches = Batches(database, projects_of(database, settings))
        yield Services(
            settings=settings,
            knowledge=Knowledge(client, Listing(database), batches, settings.gateway, rates),
            authenticator=authenticator,
            sessions=Sessions(redis, client.names, authenticator),
            rates=rates,
            batches=batches,
            feed=client.feed(),
            deployment=DeploymentMetrics(redis, client.names, database),
            missing_servers=missing_servers,
            operations=operations,
            hooks=hooks,
        )


@asynccontextmanager
async def _following_raises(redis: Redis, names: Names) -> AsyncIterator[None]:
    """Let a gateway use the partitions that are added while it runs."""
    task = asyncio.create_task(follow_raises(redis, names))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@asynccontextmanager
async def _operations(
    settings: Settings, names: Names, *, operator: bool
) -> AsyncIterator[Operations | None]:
    if not operator:
        yield None
        return
    async with Operations.open(settings, names) as operations:
        yield operations


@asynccontextmanager
async def _hooks(settings: Settings, redis: Redis) -> AsyncIterator[Hooks | None]:
    """Open the webhooks of the settings, if there are any."""
    if not settings.gateway.hooks:
        yield None
        return
    # imported lazily: gateways without webhooks sync nothing
    from gateway.sync.hook_syncs import hook_syncs  # noqa: PLC0415

    names = names_of(settings)
    async with hook_syncs(settings) as syncs:
        yield Hooks(settings.gateway.hooks, syncs, Rates(redis, names), redis, names)


async def _missing_servers(client: OperatorClient, database: Database) -> list[str]:
    missing = []
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            heartbeats = await client.heartbeats()
        if not any(
            beat.age < _ALIVE and _ANSWERER in beat.state.get("roles", ()) for beat in heartbeats
        ):
            missing.append("worker")
    except (HeadraceError, TimeoutError):
        missing.append("redis")
    try:
        async with asyncio.timeout(_CHECK_SECONDS), database.connection() as connection:
            await connection.execute("select")
    except (HeadraceError, TimeoutError):
        missing.append("postgres")
    return missing


def create_app(services: Services) -> FastAPI:
    """Create the application; it holds no state but that of ``services``."""
    limits = services.settings.gateway
    mcp = McpApp(lambda request: _access(request, services))

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
        dependencies=[Depends(_known_parameters), Depends(_storable_parameters)],
        redirect_slashes=False,
        middleware=[
            Middleware(RequestLog),
            Middleware(
                Guard,
                hosts=limits.hosts,
                origins=limits.origins,
                max_document_bytes=max(
                    services.settings.max_document_bytes, services.settings.max_binary_bytes
                ),
            ),
            *_cors(limits.origins),
        ],
    )
    app.state.services = services
    problems.install(app)
    for router in (_process, *_ROUTERS, manual.router):
        app.include_router(router)
    if services.operations is not None:
        app.include_router(operation_routes(services.operations, caller))
        app.include_router(streams.operation_streams(services.operations))
    if services.hooks is not None:
        app.include_router(hook_routes(services.hooks))
    site = Site(services.sessions, services.knowledge, services.batches, services.operations)
    app.include_router(pages(site))
    app.router.routes.append(Route("/mcp", mcp, include_in_schema=False))
    use_document(app)
    return app


def openapi_document() -> dict[str, Any]:
    """Describe all routes, with those of an operator's gateway (OpenAPI 3.1)."""
    app = FastAPI(title="Headrace", version=version("headrace"))
    for router in (_process, *_ROUTERS):
        app.include_router(router)
    no_operations: Any = None  # the routes are described, and never called
    app.include_router(operation_routes(no_operations, caller))
    app.include_router(streams.operation_streams(no_operations))
    use_document(app)
    return app.openapi()


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


async def _known_parameters(request: Request) -> None:  # an async one runs in no thread
    """Reject parameters that the route does not have: a typing error must not change an answer.

    Raises:
        UsageError: the query has an unknown parameter.
    """
    route = request.scope["route"]
    names = getattr(route, "headrace_names", None)
    if names is None:
        names = route.headrace_names = frozenset(_names(route.dependant))
    prefixes = tuple(name.removesuffix(ANY_NAME) for name in names if name.endswith(ANY_NAME))
    for name in request.query_params:
        if name not in names and not name.startswith(prefixes):
            raise UsageError(
                f"there is no parameter {name[:80]!r}",
                f"use {', '.join(sorted(names))}" if names else "this path has none",
            )


async def _storable_parameters(request: Request) -> None:  # an async one runs in no thread
    """Reject a parameter that Postgres can't hold: nothing has such a name.

    Raises:
        RequestValidationError: the text of a parameter, or a part of the path, contains NUL.
    """
    texts = [
        *(("path", *part) for part in request.path_params.items()),
        *(("query", *parameter) for parameter in request.query_params.multi_items()),
    ]
    for place, name, text in texts:
        try:
            storable(text)
        except ValueError as error:
            wrong = {"type": "value_error", "loc": (place, name), "msg": str(error)}
            raise RequestValidationError([wrong]) from None


def _names(dependant: Dependant) -> Iterator[str]:
    """Names of the parameters of a route; one that ends with ``ANY_NAME`` is a prefix."""
    for parameter in dependant.query_params:
        options = parameter.field_info.annotation
        fields = getattr(options, "model_fields", None)
        if fields is None:
            yield parameter.alias
        else:
            yield from fields
            yield from getattr(options, "PREFIXED", ())
    for dependency in dependant.dependencies:
        yield from _names(dependency)
