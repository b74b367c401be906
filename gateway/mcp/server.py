"""MCP server: a request is one operation of a backend, and its result a page.

Nothing is kept between two requests, so any process can handle any of them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Self, TextIO, TypeVar

import anyio
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    PARSE_ERROR,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    ErrorData,
    GetPromptRequestParams,
    GetPromptResult,
    JSONRPCError,
    JSONRPCResponse,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
    TextContent,
    Tool,
)
from pydantic import ValidationError

from gateway.mcp import resources, results, tools
from gateway.mcp.backends import Access, Backend
from gateway.mcp.results import Refusal

__all__ = ["AccessOf", "Call", "Context", "Observe", "create_server", "serve_text"]

_log = logging.getLogger(__name__)
_LIST_HINT = CacheHint(ttl_ms=60_000)
_OK = "ok"
_CANCELLED = "Cancelled"
_DEFECT = "InternalError"
_RESOURCE = "resource"
_COMPLETION = "completion"
_NO_TOOL = "none"
_SHOWN = 200
_LONGEST_QUESTION = 2_000
_PLACE = re.compile(r"(.+):([1-9]\d{0,8})(?:-([1-9]\d{0,8}))?", re.DOTALL)
_PROMPT = Prompt(
    name=tools.PROMPT,
    title="Ask with sources",
    description="Answer a question from the index, with a citation for each claim.",
    arguments=[PromptArgument(name="question", description="The question.", required=True)],
)
T = TypeVar("T")
Context = ServerRequestContext[Any, Any]
AccessOf = Callable[[Context], Awaitable[Access]]


@dataclass(slots=True)
class Call:
    """A finished request for a tool, a resource or a completion.

    ``tool`` is the name of the tool, `none` if there is no such tool, `resource` or `completion`.
    ``outcome`` is `ok`, or the code of the error. ``tokens`` is an upper bound for the text of the
    result.
    """

    tool: str
    outcome: str = _DEFECT
    seconds: float = 0.0
    tokens: int = 0


Observe = Callable[[Context, Call], None]
"""Receives every call after its end."""


def create_server(
    access_of: AccessOf, project: str | None = None, observe: Observe | None = None
) -> Server[Any]:
    """Create the server of one transport; ``access_of`` returns the access of a request."""
    handlers = _Handlers(access_of, observe)
    return Server(
        "headrace",
        version=version("headrace"),
        title="Headrace",
        instructions=tools.instructions(project),
        cache_hints={
            "tools/list": _LIST_HINT,
            "resources/list": _LIST_HINT,
            "resources/templates/list": _LIST_HINT,
            "prompts/list": _LIST_HINT,
        },
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_completion=handlers.complete,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )


async def serve_text(
    access: Access, stdin: TextIO, stdout: TextIO, replayed: str | None = None
) -> None:
    """Serve one client over lines of text, until ``stdin`` ends.

    ``replayed`` is the id of the request that ``Handshake.replay`` repeats, whose response is not
    for the client. None means that ``stdin`` has no such request.
    """

    async def access_of(_: Context) -> Access:
        return access

    server = create_server(access_of, access.project)
    streams = stdio_server(anyio.wrap_file(stdin), anyio.wrap_file(stdout))
    async with streams as (incoming, outgoing):
        await server.run(
            _Requests(incoming, outgoing),
            _Responses(outgoing, replayed),
            server.create_initialization_options(),
        )


class _Requests:
    """Stream of messages from a client. A line that is not JSON gets an error as its response.

    The SDK ignores such a line. A blank one is ignored here, too.
    """

    def __init__(
        self,
        stream: ReadStream[SessionMessage | Exception],
        responses: WriteStream[SessionMessage],
    ) -> None:
        self._stream = stream
        self._responses = responses

    @property
    def last_context(self) -> object:
        """Context of the last message, in which the SDK runs its handler."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        item = await self._stream.receive()
        if isinstance(item, ValidationError) and _is_text(item):
            error = ErrorData(code=PARSE_ERROR, message="the line is not JSON")
            response = JSONRPCError(jsonrpc="2.0", id=None, error=error)
            await self._responses.send(SessionMessage(response))
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _is_text(error: ValidationError) -> bool:
    """True if what could not be parsed is neither JSON nor blank."""
    first = error.errors(include_url=False)[0]
    return first["type"] == "json_invalid" and bool(str(first["input"]).strip())


class _Responses:
    """Stream of messages to a client, without the response to a request that was replayed."""

    def __init__(self, stream: WriteStream[SessionMessage], replayed: str | None) -> None:
        self._stream = stream
        self._replayed = replayed

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if (
            self._replayed is not None  # as the id of an error may be
            and isinstance(message, JSONRPCResponse | JSONRPCError)
            and message.id == self._replayed
        ):
            return
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Handlers:
    """Handlers of the requests of the protocol. The lists reach no backend."""

    def __init__(self, access_of: AccessOf, observe: Observe | None) -> None:
        self._access_of = access_of
        self._observe = observe

    async def list_tools(
        self, context: Context, _: PaginatedRequestParams | None
    ) -> ListToolsResult:
        access = await self._access_of(context)
        listed = tools.definitions(
            with_project=access.project is None, with_changes=access.may_publish
        )
        return ListToolsResult(tools=[Tool.model_validate(tool) for tool in listed])

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        access = await self._access_of(context)
        with self._observed(
            context, params.name if params.name in tools.TOOLS else _NO_TOOL
        ) as call:
            try:
                arguments = _arguments(access, params.name, params.arguments or {})
                shown = await _operate(context, access, lambda backend: _run(backend, arguments))
                call.outcome = _OK
            except Refusal as refusal:
                shown = results.error_object(refusal)
                call.outcome = refusal.code
            text = results.render(shown)
            call.tokens = results.tokens(text)
        return CallToolResult(
            content=[TextContent(type="text", text=text)],
            structured_content=None if access.text_only else shown,
            is_error="error" in shown,
        )

    async def list_resources(
        self, _: Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        return ListResourcesResult(resources=list(resources.RESOURCES))

    async def list_templates(
        self, _: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=list(resources.TEMPLATES))

    async def read_resource(
        self, context: Context, params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        access = await self._access_of(context)
        with self._observed(context, _RESOURCE) as call, _errors(call, params.uri):
            address = resources.parse(params.uri, access.project)
            contents = await _operate(
                context, access, lambda backend: resources.read(backend, address, params.uri)
            )
            call.tokens = sum(results.tokens(content.text) for content in contents)
        return ReadResourceResult(contents=[*contents])

    async def complete(self, context: Context, params: CompleteRequestParams) -> CompleteResult:
        access = await self._access_of(context)
        with self._observed(context, _COMPLETION) as call, _errors(call):
            completion = await _completion(context, access, params)
        return CompleteResult(completion=completion)

    async def list_prompts(
        self, _: Context, params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        return ListPromptsResult(prompts=[_PROMPT])

    async def get_prompt(self, context: Context, params: GetPromptRequestParams) -> GetPromptResult:
        access = await self._access_of(context)
        arguments = params.arguments or {}
        question = arguments.get("question", "").strip()
        if params.name != tools.PROMPT:
            raise MCPError(INVALID_PARAMS, f"there is no prompt {params.name[:_SHOWN]!r}")
        if arguments.keys() != {"question"} or not 0 < len(question) <= _LONGEST_QUESTION:
            raise MCPError(
                INVALID_PARAMS,
                f"the argument is question, of 1 to {_LONGEST_QUESTION:,} characters",
            )
        question = question.encode(errors="replace").decode()  # a lone surrogate can't be sent
        text = TextContent(type="text", text=tools.prompt_text(question, access.project))
        return GetPromptResult(
            description=_PROMPT.description, messages=[PromptMessage(role="user", content=text)]
        )

    @contextmanager
    def _observed(self, context: Context, tool: str) -> Iterator[Call]:
        call = Call(tool)
        began = time.perf_counter()
        try:
            yield call
        except asyncio.CancelledError:
            call.outcome = _CANCELLED
            raise
        finally:
            call.seconds = time.perf_counter() - began
            if self._observe is not None:
                self._observe(context, call)


@contextmanager
def _errors(call: Call, uri: str = "") -> Iterator[None]:
    """Turn a refusal into an error of the protocol, because the result has no place for it."""
    try:
        yield
        call.outcome = _OK
    except Refusal as refusal:
        call.outcome = refusal.code
        code = INTERNAL_ERROR if refusal.is_temporary else INVALID_PARAMS
        line = results.render(results.error_object(refusal))
        facts = {"uri": uri[:_SHOWN].encode(errors="replace").decode()} if uri else {}
        raise MCPError(code, line, refusal.error | facts) from None


def _arguments(access: Access, name: str, arguments: Mapping[str, Any]) -> tools.Arguments:
    """Check the arguments of a tool.

    Raises:
        Refusal: the caller has no such tool or project, or an argument is wrong.
    """
    tool = tools.TOOLS.get(name)
    if tool is None or (tool.changes and not access.may_publish):
        raise Refusal("UnknownTool", f"there is no tool {name[:_SHOWN]!r}", "see tools/list")
    fields = dict(arguments)
    allowed = access.project
    if allowed is not None and fields.setdefault("project", allowed) != allowed:
        raise Refusal(
            "UnknownProject",
            f"there is no project {str(fields['project'])[:_SHOWN]!r}",
            "leave `project` out",
        )
    try:
        checked = tool.arguments.model_validate(fields)
    except ValidationError as error:
        from events.fields import problem_in_words  # noqa: PLC0415  # hosts wait for the start

        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "arguments"
        remedy = "correct the arguments"
        if first["type"] == "extra_forbidden":
            names = [
                name for name in tool.arguments.model_fields if name != "project" or not allowed
            ]
            remedy = f"use {', '.join(names)}"
        raise Refusal("InvalidArguments", f"{where}: {problem_in_words(first)}", remedy) from None
    _check_texts(checked)
    return checked


def _check_texts(arguments: tools.Arguments) -> None:
    """Reject texts that Postgres can't hold: nothing has such a name.

    Raises:
        Refusal: a text contains NUL.
    """
    from events.fields import storable  # noqa: PLC0415  # hosts wait for the start

    for name, value in arguments:
        for text in value if isinstance(value, list) else [value]:
            try:
                storable(text if isinstance(text, str) else "")
            except ValueError as error:
                raise Refusal(
                    "InvalidArguments", f"{name}: {error}", "correct the arguments"
                ) from None


async def _operate(
    context: Context, access: Access, operate: Callable[[Backend], Awaitable[T]]
) -> T:
    """Open the backend with reports of progress, and run an operation.

    Raises:
        Refusal: the operation, or opening the backend, failed.
    """
    from runtime.errors import HeadraceError  # noqa: PLC0415  # `tools/list` must not wait for it

    count = 0

    async def report(line: str) -> None:
        nonlocal count
        count += 1
        await context.session.report_progress(count, None, line)

    try:
        return await operate(await access.open(report))
    except HeadraceError as error:
        raise results.refusal_of(error) from None
    except Exception as error:  # noqa: BLE001  # a defect must not end the session
        _log.exception("mcp.defect in %s", context.method)
        detail = f"unexpected {type(error).__name__}"
        remedy = "the log of the server has the details"
        raise Refusal(_DEFECT, detail, remedy, is_temporary=True) from None


async def _completion(
    context: Context, access: Access, params: CompleteRequestParams
) -> Completion:
    """Complete a variable of a template. Those without a list to choose from have no values.

    Raises:
        Refusal: there is no such template or prompt.
    """
    reference, argument, allowed = params.ref, params.argument, access.project
    if isinstance(reference, PromptReference):
        kind, name, names = "prompt", reference.name, {tools.PROMPT}
    else:
        templates = {template.uri_template for template in resources.TEMPLATES}
        kind, name, names = "template", reference.uri, templates
    if name not in names:
        raise Refusal("NotFound", f"there is no {kind} {name[:_SHOWN]!r}", f"list the {kind}s")
    if (kind, argument.name) == ("template", "uri"):
        chosen = (params.context.arguments if params.context else None) or {}
        project = resources.project_of(
            chosen.get("project") or allowed or tools.USUAL_PROJECT, allowed
        )
        values, has_more = await _operate(
            context, access, lambda backend: resources.complete(backend, project, argument.value)
        )
        return Completion(values=values, has_more=has_more)
    is_begun = argument.name == "project" and (allowed or "").startswith(argument.value)
    return Completion(values=[allowed] if allowed and is_begun else [], has_more=False)


async def _run(backend: Backend, arguments: tools.Arguments) -> results.Object:
    match arguments:
        case tools.Search():
            return await _search(backend, arguments)
        case tools.Read():
            return await _read(backend, arguments)
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


async def _read(backend: Backend, read: tools.Read) -> results.Object:
    from runtime.errors import HeadraceError, NotFound  # noqa: PLC0415  # as in `_operate`

    first, last = read.lines
    try:
        lines = await backend.read(read.project, read.uri, first, last)
    except HeadraceError as error:
        place = _PLACE.fullmatch(read.uri)
        if error.code != NotFound.__name__ or place is None:
            raise
        uri, start, end = place[1], place[2], place[3] or place[2]
        remedy = f"to read lines of {uri[:_SHOWN]!r}, give start_line {start} and end_line {end}"
        raise NotFound(error.message, remedy) from None
    return results.lines_object(read.uri, lines, read.max_tokens)


async def _search(backend: Backend, search: tools.Search) -> results.Object:
    from runtime.errors import HeadraceError, UsageError  # noqa: PLC0415  # `tools/list` must not wait for it

    notes: tuple[str, ...] = ()
    if search.refresh:
        if search.min_event:
            raise UsageError(
                "refresh waits for the changes of its own syncs", "leave min_event out"
            )
        refreshed = await backend.refresh(search.project)
        search = search.model_copy(update={"min_event": refreshed.token or ""})
        notes = refreshed.notes
    answer = await backend.search(search)
    status = None
    if not answer.results:
        try:
            status = await backend.status(search.project)
        except HeadraceError:
            status = None  # the key may not read; the answer is complete without it
    return results.answer_object(answer, search.max_tokens, status, notes)


async def _list(backend: Backend, listed: tools.List) -> results.Object:
    page = await backend.documents(listed)
    count = results.documents_that_fit(listed.project, page, listed.max_tokens)
    truncated = count < len(page.documents)
    if truncated:  # only a page of this length has the right `next`
        page = await backend.documents(listed.model_copy(update={"limit": count}))
    return results.documents_object(listed.project, page, truncated=truncated)
