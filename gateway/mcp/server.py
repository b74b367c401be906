"""MCP server over stdio and HTTP: a request is one operation of a backend, and its result a page.

Nothing is kept between two requests, so any process can handle any of them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from gateway.mcp import results, tools
from gateway.mcp.backends import Access, Backend

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

__all__ = ["McpApp", "create_server", "mcp_app", "serve_stdio"]

_log = logging.getLogger(__name__)
_ACCESS = "headrace.mcp_access"
_LIST_TTL_MS = 60_000
Context = ServerRequestContext[Any, Any]
AccessOf = Callable[[Context], Awaitable[Access]]


def create_server(access_of: AccessOf, project: str | None = None) -> Server[Any]:
    """Create the server of one transport; ``access_of`` returns the access of a request."""

    async def list_tools(context: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        access = await access_of(context)
        listed = tools.definitions(
            with_project=access.project is None, with_changes=access.may_publish
        )
        return ListToolsResult(tools=[Tool.model_validate(tool) for tool in listed])

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        access = await access_of(context)
        shown = await _call(context, access, params.name, params.arguments or {})
        return CallToolResult(
            content=[TextContent(type="text", text=results.render(shown))],
            structured_content=shown,
            is_error="error" in shown,
        )

    return Server(
        "headrace",
        version=version("headrace"),
        title="Headrace",
        instructions=tools.instructions(project),
        cache_hints={"tools/list": CacheHint(ttl_ms=_LIST_TTL_MS)},
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(access: Access) -> None:
    """Serve one client over stdin and stdout, until stdin ends."""

    async def access_of(_: Context) -> Access:
        return access

    server = create_server(access_of, access.project)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class McpApp:
    """ASGI application for the path of MCP, without sessions; every response is JSON.

    The application that mounts it enters ``running`` for its lifetime, and checks hosts.
    """

    def __init__(self, access_for: Callable[[Request], Awaitable[Access]]) -> None:
        self._access_for = access_for
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Handle requests until the context ends."""
        manager = StreamableHTTPSessionManager(
            create_server(_access_of_request), json_response=True, stateless=True
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; raises as ``access_for``, before anything is sent."""
        if self._manager is None:
            raise RuntimeError("enter McpApp.running() first")
        request = Request(scope, receive)
        scope[_ACCESS] = await self._access_for(request)
        if scope["method"] != "POST":  # GET would open a stream that never has a message
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        body = await request.body()  # the SDK would make a defect of an error in `receive`
        await self._manager.asgi_app(scope, _replayed(body, receive), send)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Receive a body that was read already, and then what follows it."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return parts.pop() if parts else await receive()

    return replayed


def mcp_app(access_for: Callable[[Request], Awaitable[Access]]) -> McpApp:
    """Create the application for MCP over HTTP.

    ``access_for`` returns the access of a request by its Authorization header. It raises an error
    that the mounting application turns into a response (401, 429).
    """
    return McpApp(access_for)


async def _access_of_request(context: Context) -> Access:
    assert context.request is not None  # the transport always has one
    access: Access = context.request.scope[_ACCESS]
    return access


async def _call(
    context: Context, access: Access, name: str, arguments: Mapping[str, Any]
) -> results.Object:
    """Run a tool. An error is an object too: the model can correct its call."""
    tool = tools.TOOLS.get(name)
    if tool is None or (tool.changes and not access.may_publish):
        return _refusal("UnknownTool", f"there is no tool {name[:80]!r}", "see tools/list")
    fields = dict(arguments)
    allowed = access.project
    if allowed is not None and fields.setdefault("project", allowed) != allowed:
        return _refusal(
            "UnknownProject",
            f"there is no project {str(fields['project'])[:80]!r}",
            "leave `project` out",
        )
    try:
        parsed = tool.arguments.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "arguments"
        return _refusal("InvalidArguments", f"{where}: {first['msg']}", "correct the arguments")

    from runtime.errors import HeadraceError  # noqa: PLC0415  # `tools/list` must not wait for it

    count = 0

    async def report(line: str) -> None:
        nonlocal count
        count += 1
        await context.session.report_progress(count, None, line)

    try:
        return await _run(await access.open(report), parsed)
    except HeadraceError as error:
        return results.error_object(error)
    except Exception as error:  # noqa: BLE001  # a defect must not end the session
        _log.exception("mcp.defect in %s", name)
        detail = f"unexpected {type(error).__name__}"
        return _refusal("InternalError", detail, "the log of the server has the details")


def _refusal(code: str, detail: str, remedy: str) -> results.Object:
    return {"error": {"code": code, "detail": detail, "remedy": remedy}}


async def _run(backend: Backend, arguments: tools.Arguments) -> results.Object:
    match arguments:
        case tools.Search():
            return await _search(backend, arguments)
        case tools.Read():
            first, last = arguments.lines
            lines = await backend.read(arguments.project, arguments.uri, first, last)
            return results.lines_object(arguments.uri, lines, arguments.max_tokens)
        case tools.List():
            return await _list(backend, arguments)
        case tools.Remember():
            return results.change_object(arguments.uri, await backend.remember(arguments))
        case tools.Forget():
            return results.change_object(arguments.uri, await backend.forget(arguments))
        case tools.Status(token=""):
            return results.status_object(await backend.status(arguments.project))
        case tools.Status():
            change = await backend.change(arguments.project, arguments.token)
            return results.change_object(None, change)
    raise TypeError(f"no operation for {type(arguments).__name__}")


async def _search(backend: Backend, search: tools.Search) -> results.Object:
    from runtime.errors import HeadraceError  # noqa: PLC0415  # `tools/list` must not wait for it

    answer = await backend.search(search)
    status = None
    if not answer.results:
        try:
            status = await backend.status(search.project)
        except HeadraceError:
            status = None  # the key may not read; the answer is complete without it
    return results.answer_object(answer, search.max_tokens, status)


async def _list(backend: Backend, listed: tools.List) -> results.Object:
    page = await backend.documents(listed)
    count = results.documents_that_fit(listed.project, page, listed.max_tokens)
    truncated = count < len(page.documents)
    if truncated:  # only a page of this length has the right `next`
        page = await backend.documents(listed.model_copy(update={"limit": count}))
    return results.documents_object(listed.project, page, truncated=truncated)
