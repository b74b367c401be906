"""``headrace api-keys``: keys with which programs and people use the gateway."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar

import typer
from pydantic import TypeAdapter, ValidationError

from events.fields import Agent, Project, problem_in_words
from gateway.auth.callers import Right
from gateway.clients import open_database
from gateway.output import print_json, stdout, table
from gateway.servers import stack
from gateway.session import JsonOption, run_client
from processors.recipes import recipe_of
from runtime.errors import UsageError
from runtime.settings import Settings
from store.generations.catalog import Projects
from store.keys.api_keys import ApiKey, ApiKeyRecord, ApiKeyRegister, NewApiKey
from store.postgres.roles import OPERATOR

__all__ = ["command", "lifetime_of", "rights_of"]

T = TypeVar("T")
command = typer.Typer(rich_markup_mode=None)

_LIFETIME = re.compile(r"([1-9][0-9]{0,3})([mhd])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


@command.command()
def add(
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Project that the key is valid for.")
    ] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="Create a key for all projects instead.")
    ] = False,
    may: Annotated[
        str, typer.Option(help="Rights, with commas: ask, read, publish, operate.")
    ] = "ask,read",
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            "--user",
            help="Agent whose private documents the key's holder sees and writes.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time until it expires: 90d, 12h or 30m; default: never."
        ),
    ] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=0, help="Limit of requests; 0 means none.")
    ] = None,
    bytes_per_minute: Annotated[
        int | None, typer.Option(min=0, help="Limit of published bytes; 0 means none.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Create a key and print it; it is not shown again.

    The key decides the project and the agent of everything that its holder does.
    """
    properties = NewApiKey(
        project=_project_of(project, operator=operator),
        rights=rights_of(may),
        agent=None if agent is None else _valid(Agent, agent, "--agent"),
        lifetime=None if expires is None else lifetime_of(expires),
        requests_per_minute=requests_per_minute,
        bytes_per_minute=bytes_per_minute,
    )
    key = ApiKey.new()
    expires_at = _with_register(lambda register: register.add(key, properties))
    if not json:
        typer.echo(f"HEADRACE_API_KEY={key.text}")
        return
    print_json(
        {
            "key_id": key.id,
            "api_key": key.text,
            "project": properties.project,
            "agent": properties.agent,
            "rights": sorted(properties.rights),
            "expires_at": _text(expires_at),
        }
    )


@command.command("list")
def list_keys(
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Keys of this project; default: all.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List keys, without their secrets."""
    records = _with_register(lambda register: register.list(project))
    if json:
        for record in records:
            print_json(_plain(record))
    elif records:
        stdout().print(table([_row(record) for record in records]))
    else:
        typer.echo("there are no API keys")


@command.command()
def retire(
    key: Annotated[str, typer.Argument(metavar="ID", help="Id from `list`.")],
) -> None:
    """Refuse a key, starting within 5 seconds; its sessions end with it."""
    _with_register(lambda register: register.retire(key))
    typer.echo(f"retired: {key}")


def rights_of(text: str) -> frozenset[str]:
    """Parse rights that are separated by commas.

    Raises:
        UsageError: there is none, or one that does not exist.
    """
    rights = frozenset(part.strip() for part in text.split(",") if part.strip())
    names = [right.value for right in Right]
    unknown = sorted(rights.difference(names))
    if unknown or not rights:
        raise UsageError(
            f"--may {text[:80]!r} is not a list of rights", f"rights are: {', '.join(names)}"
        )
    return rights


def lifetime_of(text: str) -> timedelta:
    """Parse a time such as 90d, 12h or 30m.

    Raises:
        UsageError: it has another form.
    """
    match = _LIFETIME.fullmatch(text)
    if match is None:
        raise UsageError(f"--expires {text[:80]!r} is not a time", "write 90d, 12h or 30m")
    return int(match[1]) * _UNITS[match[2]]


def _project_of(project: str | None, *, operator: bool) -> str | None:
    """Return the project of a key, or None for a key of an operator; exactly one is required."""
    if operator != (project is None):
        raise UsageError(
            "a key is either of one project or of an operator, for all projects",
            "pass --project NAME, or --operator",
        )
    return None if project is None else _valid(Project, project, "--project")


def _valid(kind: Any, text: str, option: str) -> str:
    try:
        valid: str = TypeAdapter(kind).validate_python(text)
    except ValidationError as error:
        reason = problem_in_words(error.errors(include_url=False)[0])
        raise UsageError(f"{option} {text[:80]!r}: {reason}") from None
    return valid


def _with_register(work: Callable[[ApiKeyRegister], Awaitable[T]]) -> T:
    async def main(settings: Settings) -> T:
        async with (
            stack(settings, with_worker=False) as running,
            open_database(running, OPERATOR) as database,
        ):
            projects = Projects(database, recipe_of(running))
            return await work(ApiKeyRegister(database, projects))

    return run_client(main)


def _plain(record: ApiKeyRecord) -> dict[str, Any]:
    times = ("created_at", "expires_at", "retired_at", "last_used_at")
    return {
        "key_id": record.key_id,
        "project": record.project,
        "agent": record.agent,
        "rights": list(record.rights),
        "requests_per_minute": record.requests_per_minute,
        "bytes_per_minute": record.bytes_per_minute,
        **{name: _text(getattr(record, name)) for name in times},
    }


def _row(record: ApiKeyRecord) -> dict[str, str | None]:
    return {
        "id": record.key_id,
        "project": record.project or "(all)",
        "may": ",".join(record.rights),
        "agent": record.agent,
        "since": _text(record.created_at),
        "expires": _text(record.expires_at),
        "retired": _text(record.retired_at),
        "last_used": _text(record.last_used_at),
    }


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds")
