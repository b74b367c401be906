"""``headrace ask``: answer one question with results and their citations."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from events.models import Filters, Kind, QueryAnswer, first_problem
from gateway.clients import open_client
from gateway.output import print_json, stdout
from gateway.servers import stack
from gateway.session import JsonOption, ProjectOption, duration, run_client
from runtime.errors import UsageError
from runtime.settings import Settings

__all__ = ["Mode", "command"]


class Mode(StrEnum):
    """Retrievers that a query uses."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    KEYWORD = "keyword"


def command(
    text: Annotated[str, typer.Argument(help="The question, at most 2,000 characters.")],
    project: ProjectOption = "default",
    limit: Annotated[int, typer.Option(help="Results, 1 to 100.")] = 5,
    mode: Annotated[Mode, typer.Option(help="Search by meaning, by words, or both.")] = Mode.HYBRID,
    min_event: Annotated[
        str | None, typer.Option(help="Token of a published change that the answer must reflect.")
    ] = None,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="With --min-event: also wait for its vectors.")
    ] = False,
    agent: Annotated[str | None, typer.Option(help="Also search this agent's documents.")] = None,
    kind: Annotated[list[Kind] | None, typer.Option(help="Only documents of this kind.")] = None,
    examples: Annotated[
        bool,
        typer.Option("--examples", help="Search code examples in documents, and nothing else."),
    ] = False,
    collection: Annotated[
        list[str] | None, typer.Option(help="Only documents of this collection.")
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
        typer.Option(help="Only documents with such fields, as 'version >= 3 and team in (a, b)'."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show how each result was ranked, with scores and times."),
    ] = False,
    context: Annotated[
        int | None, typer.Option(help="Also assemble a context of at most this many tokens.")
    ] = None,
    min_similarity: Annotated[
        float | None,
        typer.Option(help="Only results of at least this cosine similarity, 0 to 1."),
    ] = None,
    rerank: Annotated[
        bool, typer.Option("--rerank/--no-rerank", help="Let the workers' reranker set the order.")
    ] = True,
    min_relevance: Annotated[
        float | None,
        typer.Option(help="Only results of at least this relevance by the reranker, 0 to 1."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Longest wait for the answer, in seconds.")] = 10,
    json: JsonOption = False,
) -> None:
    """Ask a question and print the best results with their citations."""
    if vectors and min_event is None:
        raise UsageError("--vectors needs --min-event", "give the token of the change to wait for")
    kinds = [*(kind or ()), *([Kind.CODE_EXAMPLE] if examples else [])]
    filters = _filters(
        kinds=kinds,
        collections=collection or (),
        uri_prefix=under,
        path_globs=path or (),
        languages=lang or (),
        symbols=symbol or (),
        where=" and ".join(f"({condition})" for condition in where) if where else None,
    )
    query = {
        "agent": agent,
        "limit": limit,
        "mode": mode.value,
        "min_event": min_event,
        "vectors": vectors,
        "filters": filters,
        "explain": explain,
        "context_tokens": context,
        "min_similarity": min_similarity,
        "rerank": rerank,
        "min_relevance": min_relevance,
        "timeout": duration(timeout),
    }
    answer = run_client(lambda settings: _ask(settings, project, text, query))
    if json:
        print_json(answer.model_dump(mode="json", exclude_none=True))
    else:
        from gateway.answer_view import print_answer  # noqa: PLC0415  # the terminal's library

        print_answer(stdout(), answer, text, explain=explain)


async def _ask(settings: Settings, project: str, text: str, query: dict[str, Any]) -> QueryAnswer:
    async with stack(settings) as running, open_client(running) as client:
        return await client.ask(project, text, **query)


def _filters(**conditions: Any) -> Filters:
    try:
        return Filters.model_validate(conditions)
    except ValidationError as error:
        raise UsageError(f"filter {first_problem(error)}") from None
