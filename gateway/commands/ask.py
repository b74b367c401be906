"""``headrace ask`` and ``headrace grep``: answer one question, or print the lines of a pattern."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from events.client.client import Client
from events.client.questions import QueryRefused
from events.condition_text import parsed
from events.fields import Project, problem_in_words
from events.models import ExactCounts, Filters, Kind, QueryAnswer, first_problem
from gateway.clients import open_client
from gateway.failures import report
from gateway.output import print_json, printable, stderr, stdout
from gateway.servers import stack
from gateway.session import JsonOption, ProjectOption, duration, linked_work_tree, run_client
from runtime import protocol_limits
from runtime.errors import HeadraceError, NotFound, UsageError
from runtime.settings import Settings

if TYPE_CHECKING:
    from gateway.line_view import LinePrinter
    from gateway.sync.refresh import Refresh

__all__ = ["Group", "Mode", "command", "grep"]

_NO_MATCH = 1
_FAILED = 2
_DASHES = "before a text that begins with -, write --"
_MOST_STALLS = 5
"""Questions of `grep` in a row that may end before a single document was searched."""


AgentOption = Annotated[
    str | None,
    typer.Option("--agent", "--user", help="Also search this agent's private documents."),
]


OverlayOption = Annotated[
    str | None,
    typer.Option(
        help="Search the versions of this overlay; empty: none; default: that of the linked work "
        "tree of the current directory."
    ),
]


class Mode(StrEnum):
    """Retrievers that a query uses."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    KEYWORD = "keyword"


class AskMode(StrEnum):
    """The same, and the exact search."""

    HYBRID = Mode.HYBRID.value
    VECTOR = Mode.VECTOR.value
    KEYWORD = Mode.KEYWORD.value
    EXACT = "exact"


class Group(StrEnum):
    """Results of an answer: each passage, or the best passage of each document."""

    CHUNK = "chunk"
    DOCUMENT = "document"


def command(
    text: Annotated[
        str | None,
        typer.Argument(
            help="The question, at most 2,000 characters; write -- before one that begins with -."
        ),
    ] = None,
    project: ProjectOption = "default",
    limit: Annotated[int, typer.Option(help="Results.", min=1, max=protocol_limits.RESULTS)] = 5,
    group: Annotated[
        Group, typer.Option(help="One result per passage, or per document.")
    ] = Group.DOCUMENT,
    sections: Annotated[
        bool,
        typer.Option(
            "--sections/--no-sections",
            help="Rank code and other documents apart, each with its own limit.",
        ),
    ] = True,
    mode: Annotated[
        AskMode, typer.Option(help="Search by meaning, by words, both, or exactly.")
    ] = AskMode.HYBRID,
    min_event: Annotated[
        str | None, typer.Option(help="Token of a published change that the answer must reflect.")
    ] = None,
    refresh: Annotated[
        bool,
        typer.Option(
            "--refresh",
            help="First sync what has changed in the project's repositories and directories here.",
        ),
    ] = False,
    refresh_seconds: Annotated[
        float, typer.Option(help="With --refresh: longest time that it may take.", min=0)
    ] = 2.0,
    vectors: Annotated[
        bool,
        typer.Option("--vectors", help="With --min-event or --refresh: also wait for vectors."),
    ] = False,
    agent: AgentOption = None,
    overlay: OverlayOption = None,
    kind: Annotated[list[Kind] | None, typer.Option(help="Only documents of this kind.")] = None,
    examples: Annotated[
        bool,
        typer.Option("--examples", help="Search code examples in documents, and nothing else."),
    ] = False,
    collection: Annotated[
        list[str] | None,
        typer.Option("--collection", "--team", help="Only documents of this collection."),
    ] = None,
    under: Annotated[str | None, typer.Option(help="Only uris that begin with this.")] = None,
    path: Annotated[
        list[str] | None,
        typer.Option(help="Only uris that match this, as in a .gitignore; !PATTERN excludes."),
    ] = None,
    lang: Annotated[
        list[str] | None, typer.Option(help="Only code in this language, as python or py.")
    ] = None,
    symbol: Annotated[
        list[str] | None, typer.Option(help="Only where this function, class or method is defined.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Only documents whose fields match: 'version >= 3 and team in (a, b)'."),
    ] = None,
    operators: Annotated[
        bool,
        typer.Option(help='Read path:, lang:, symbol:, kind:, "a phrase" and -word as filters.'),
    ] = True,
    like: Annotated[
        str | None,
        typer.Option(help="In place of a question: find what is like the chunk at path:line."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show how each result was ranked, with scores and times."),
    ] = False,
    context: Annotated[
        int | None,
        typer.Option(
            help="Also assemble a context of at most this many tokens.",
            min=32,
            max=protocol_limits.CONTEXT_TOKENS,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="With --context: tokenizer or OpenAI model whose tokens are counted."),
    ] = None,
    min_similarity: Annotated[
        float | None,
        typer.Option(help="Only results of at least this cosine similarity.", min=0, max=1),
    ] = None,
    rerank: Annotated[
        bool, typer.Option("--rerank/--no-rerank", help="Let the workers' reranker set the order.")
    ] = True,
    min_relevance: Annotated[
        float | None,
        typer.Option(help="Only results of at least this relevance by the reranker.", min=0, max=1),
    ] = None,
    diversity: Annotated[
        float,
        typer.Option(help="Prefer results that differ from each other; 0: off.", min=0, max=1),
    ] = 0.0,
    timeout: Annotated[float, typer.Option(help="Longest wait for the answer, in seconds.")] = 10,
    json: JsonOption = False,
) -> None:
    """Ask a question and print the best results with their citations."""
    _check_project(project)
    if like is None and not (text or "").strip():
        raise UsageError("the question is empty", f"give a text, or --like; {_DASHES}")
    if vectors and min_event is None and not refresh:
        raise UsageError("--vectors needs --min-event", "give the token of the change to wait for")
    if refresh and min_event is not None:
        raise UsageError(
            "--refresh waits for the changes of its own syncs", "leave --min-event out"
        )
    kinds = [*(kind or ()), *([Kind.CODE_EXAMPLE] if examples else [])]
    filters = _filters(
        kinds=kinds,
        collections=collection or (),
        uri_prefix=under,
        path_globs=path or (),
        languages=lang or (),
        symbols=symbol or (),
        where=_conditions(where or ()),
    )
    query = {
        "like": like,
        "agent": agent,
        "overlay": overlay,
        "limit": limit,
        "mode": mode.value,
        "operators": operators,
        "min_event": min_event,
        "vectors": vectors,
        "filters": filters,
        "explain": explain,
        "context_tokens": context,
        "context_tokenizer": tokenizer,
        "group": group.value,
        "sections": sections,
        "diversity": diversity,
        "min_similarity": min_similarity,
        "rerank": rerank,
        "min_relevance": min_relevance,
        "timeout": duration(timeout),
    }
    limit_of_refresh = timedelta(seconds=refresh_seconds) if refresh else None

    def show(answer: QueryAnswer, refreshed: Refresh | None) -> None:
        if json:
            shown = answer.model_dump(mode="json", exclude_none=True)
            print_json(shown if refreshed is None else {**shown, "refresh": asdict(refreshed)})
            return
        from gateway.answer_view import print_answer  # noqa: PLC0415  # the terminal's library

        print_answer(stdout(), answer, text or "", explain=explain)
        for note in () if refreshed is None else refreshed.notes:
            stderr().print(printable(f"not refreshed: {note}"), markup=False)

    run_client(lambda settings: _ask(settings, project, text, query, limit_of_refresh, show))


def grep(
    pattern: Annotated[
        str,
        typer.Argument(
            help="A regular expression or, with -F, a text; write -- before one that begins with -."
        ),
    ],
    project: ProjectOption = "default",
    fixed_strings: Annotated[
        bool, typer.Option("--fixed-strings", "-F", help="The pattern is a text.")
    ] = False,
    extended_regexp: Annotated[
        bool,
        typer.Option(
            "--extended-regexp", "-E", help="The pattern is a regular expression (the default)."
        ),
    ] = False,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Letters of either case match.")
    ] = False,
    word_regexp: Annotated[
        bool, typer.Option("--word-regexp", "-w", help="Match whole words only; this is faster.")
    ] = False,
    context: Annotated[
        int,
        typer.Option(
            "--context",
            "-C",
            help="Lines before and after each match.",
            min=0,
            max=protocol_limits.CONTEXT_LINES,
        ),
    ] = 0,
    files_with_matches: Annotated[
        bool, typer.Option("--files-with-matches", "-l", help="Print uris only.")
    ] = False,
    count: Annotated[
        bool, typer.Option("--count", "-c", help="Print the number of lines of each document.")
    ] = False,
    max_count: Annotated[
        int | None, typer.Option("--max-count", "-m", help="Most results; default: all.", min=1)
    ] = None,
    path: Annotated[
        list[str] | None,
        typer.Option(help="Only uris that match this pattern, as in a .gitignore; ! excludes."),
    ] = None,
    lang: Annotated[list[str] | None, typer.Option(help="Only code in this language.")] = None,
    kind: Annotated[list[Kind] | None, typer.Option(help="Only documents of this kind.")] = None,
    collection: Annotated[
        list[str] | None,
        typer.Option("--collection", "--team", help="Only documents of this collection."),
    ] = None,
    under: Annotated[str | None, typer.Option(help="Only uris that begin with this.")] = None,
    agent: AgentOption = None,
    overlay: OverlayOption = None,
    timeout: Annotated[float, typer.Option(help="Longest wait for an answer, in seconds.")] = 10,
    json: JsonOption = False,
) -> None:
    """Print the lines that match a pattern, in path order, as ``uri:line:text``.

    The exit code is 0 if a line matches, 1 if none does, and 2 after an error.
    """
    query: dict[str, Any] = {
        "mode": "exact",
        "regex": not fixed_strings,
        "ignore_case": ignore_case,
        "whole_words": word_regexp,
        "context_lines": context,
        "per_file": files_with_matches or count,
        "agent": agent,
        "overlay": overlay,
        "timeout": duration(timeout),
    }
    from gateway.line_view import LinePrinter  # noqa: PLC0415  # the terminal's library

    show = LinePrinter(json=json, uris=files_with_matches, counts=count, separate=bool(context))
    try:
        _check_project(project)
        if fixed_strings and extended_regexp:
            raise UsageError("-F and -E contradict each other", "leave one out")
        query["filters"] = _filters(
            path_globs=path or (),
            languages=lang or (),
            kinds=kind or (),
            collections=collection or (),
            uri_prefix=under,
        )
        run_client(lambda settings: _grep(settings, project, pattern, query, max_count, show))
    except HeadraceError as error:
        report(error)
        raise typer.Exit(_FAILED) from None
    if not show.results:
        raise typer.Exit(_NO_MATCH)


async def _grep(
    settings: Settings,
    project: str,
    pattern: str,
    query: dict[str, Any],
    most: int | None,
    show: LinePrinter,
) -> None:
    async with stack(settings) as running, open_client(running) as client:
        async for answer in _answers(client, project, pattern, query, most):
            show.answer(answer)


async def _ask_here(
    client: Client, project: str, text: str | None, query: Mapping[str, Any]
) -> QueryAnswer:
    """Return the answer to a query in the overlay that it names, or in that of the directory.

    A linked work tree need not be synced. Then the answer is that from outside overlays.
    """
    overlay = query["overlay"]
    if overlay is not None:
        return await client.ask(project, text, **{**query, "overlay": overlay or None})
    overlay = linked_work_tree(Path.cwd())
    if overlay is not None:
        try:
            return await client.ask(project, text, **{**query, "overlay": overlay})
        except QueryRefused as error:
            if error.code != NotFound.__name__:
                raise
    return await client.ask(project, text, **query)


async def _answers(
    client: Client, project: str, pattern: str, query: dict[str, Any], most: int | None
) -> AsyncIterator[QueryAnswer]:
    """Ask until the whole project is searched, or ``most`` results came.

    Raises:
        UsageError: the pattern takes too long even for a few documents.
    """
    left, after, stalls = most, None, 0
    while left is None or left > 0:
        limit = min(left or protocol_limits.RESULTS, protocol_limits.RESULTS)
        page = {**query, "limit": limit, "after": after}
        answer = await _ask_here(client, project, pattern, page)
        yield answer
        counts = answer.exact or ExactCounts(matches=0, files=0)
        if counts.next is None:
            return
        stalls = 0 if counts.searched_to or not counts.truncated else stalls + 1
        if stalls == _MOST_STALLS:
            raise UsageError("the pattern takes too long", "make it simpler, or use --path")
        after = counts.next
        left = None if left is None else left - len(answer.results)


async def _ask(
    settings: Settings,
    project: str,
    text: str | None,
    query: dict[str, Any],
    longest_refresh: timedelta | None,
    show: Callable[[QueryAnswer, Refresh | None], None],
) -> None:
    """Ask, after a refresh if it has a longest time, and show the answer.

    It is shown here, because a listing of files that took too long still ends before the process.
    """
    async with stack(settings) as running, open_client(running) as client:
        refreshed = None
        if longest_refresh is not None:
            from gateway.sync.refresh import refresh_sources  # noqa: PLC0415  # it is slow

            overlay = query["overlay"]
            refreshed = await refresh_sources(
                running,
                project,
                longest_refresh,
                agent=query["agent"],
                overlay=linked_work_tree(Path.cwd()) if overlay is None else overlay,
            )
            has_token = refreshed.token is not None
            query = {
                **query,
                "min_event": refreshed.token,
                "vectors": query["vectors"] and has_token,
            }
        show(await _ask_here(client, project, text, query), refreshed)


def _check_project(name: str) -> None:
    """Raise UsageError for a name that no project has, such as the rest of a text as ``-path:…``.

    The parser of the command line takes it for ``-p ath:…``.
    """
    try:
        TypeAdapter[str](Project).validate_python(name)
    except ValidationError as error:
        problem = problem_in_words(error.errors(include_url=False)[0])
        raise UsageError(f"project {name[:80]!r}: the name {problem}", _DASHES) from None


def _conditions(texts: Sequence[str]) -> dict[str, Any] | None:
    """One condition of all texts; each is read by itself, so that an error gives its place."""
    conditions = []
    for text in texts:
        try:
            conditions.append(parsed(text))
        except ValueError as error:
            raise UsageError(f"--where {text[:80]!r}: {error}") from None
    return {"and": conditions} if len(conditions) > 1 else next(iter(conditions), None)


def _filters(**conditions: Any) -> Filters:
    try:
        return Filters.model_validate(conditions)
    except ValidationError as error:
        raise UsageError(f"filter {first_problem(error)}") from None
