"""Setup shared by all commands: settings, logs, event loop, and options that several have."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from runtime.errors import ConfigurationError, UnknownSetting, UsageError
from runtime.lifespan import run
from runtime.logs import configure_logs
from runtime.secrets import keep_secret
from runtime.settings import EventLimits, Settings
from runtime.trace_export import exporting

__all__ = [
    "ACCESS_VARIABLES",
    "CollectionOption",
    "IncludeOption",
    "JsonOption",
    "PrefixOption",
    "ProjectOption",
    "SourceOption",
    "WorktreeOption",
    "duration",
    "load_settings",
    "readiness_file",
    "require_known",
    "run_client",
    "run_service",
    "unless_stopped",
    "wrong_setting",
]

T = TypeVar("T")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ProjectOption = Annotated[str, typer.Option("--project", "-p", help="Name of the project.")]

CollectionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--collection", "--team", help="Put the documents into this collection, as of a team."
    ),
]
OwnerOption = Annotated[
    str | None,
    typer.Option(
        "--agent", "--user", help="Publish private documents, which only this agent or user finds."
    ),
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        help="Name that identifies the source; "
        "default: the repository, or the path of the directory."
    ),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Also publish files that match this pattern (as in .gitignore), even if they are "
        "ignored or left out by default."
    ),
]
WorktreeOption = Annotated[
    bool,
    typer.Option("--worktree", help="For a repository: publish the files as they are now."),
]
PrefixOption = Annotated[
    str | None,
    typer.Option(help="Prefix of the uri of every document, such as docs/; later syncs keep it."),
]

_LONGEST_SECONDS = 86_400.0
_LINKED = "/worktrees/"
_LONGEST_MARK = 4096
_FIELD = re.compile(r'field "(\w+)"')
_NOT_A_MAPPING = frozenset({"dict_type", "model_type"})

_PREFIX = "HEADRACE_"
_SETTINGS = frozenset(f"{_PREFIX}{name.upper()}" for name in Settings.model_fields)
ACCESS_VARIABLES = frozenset(
    f"HEADRACE_{role}_PASSWORD"
    for role in ("ANSWERER", "GATEWAY", "OPERATOR", "PUBLISHER", "WORKER")
) | {"HEADRACE_PASSWORDS_DIRECTORY"}
"""Variables of `headrace access` alone; upper case matters."""
_OTHERS = re.compile(
    r"HEADRACE_(?:TEST_\w+|OWNER_PASSWORD|URL|API_KEY|MCP_RESULTS|"
    r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_(?:TCP|UDP)\w*))"
)
"""Variables of the tests, of docker-compose.yml, of the gateway's callers and of `headrace mcp`.
Others are set by Kubernetes in every pod, for a service whose name begins with ``headrace``."""
_MOVED = {f"HEADRACE_MAX_{key.upper()}": ("LIMITS", key) for key in EventLimits.model_fields} | {
    "HEADRACE_CHUNKING_MEMORY_BYTES": ("CHUNKING_LIMITS", "memory_bytes"),
    "HEADRACE_CHUNKING_TIMEOUT": ("CHUNKING_LIMITS", "timeout"),
    "HEADRACE_EXACT_SEARCH_CHUNKS": ("VECTOR_SEARCH", "exact_chunks"),
    "HEADRACE_HNSW_EF_SEARCH": ("VECTOR_SEARCH", "ef_search"),
    "HEADRACE_MAX_CHUNKS_PER_DOCUMENT": ("CHUNKING_LIMITS", "chunks"),
    "HEADRACE_MODEL_FAILURES": ("MODEL_REQUESTS", "failures"),
    "HEADRACE_ARCHIVE_COMPACTION_INTERVAL": ("RETENTION", "compaction_interval"),
    "HEADRACE_MODEL_REQUESTS_PER_MINUTE": ("MODEL_RATE_LIMITS", "requests_per_minute"),
    "HEADRACE_MODEL_RETRIES": ("MODEL_REQUESTS", "retries"),
    "HEADRACE_MODEL_TIMEOUT": ("MODEL_REQUESTS", "timeout"),
    "HEADRACE_MODEL_TOKENS_PER_MINUTE": ("MODEL_RATE_LIMITS", "tokens_per_minute"),
}
"""Setting and key that replace each variable of earlier versions."""


def linked_work_tree(directory: Path) -> str | None:
    """Root of the linked work tree of git around a directory; its overlay has this name.

    Returns None if there is none. A work tree is linked if its ``.git`` is a file that names its
    folder in the repository.
    """
    for folder in (directory, *directory.parents):
        mark = folder / ".git"
        with suppress(OSError, UnicodeDecodeError):
            if mark.is_dir():
                return None
            if mark.is_file():
                with mark.open(encoding="utf-8") as file:
                    return str(folder) if _LINKED in file.read(_LONGEST_MARK) else None
    return None


def duration(seconds: float) -> timedelta:
    """Convert the --timeout option from seconds.

    Raises:
        UsageError: the value is not positive, or longer than a day.
    """
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise UsageError(
            f"--timeout must be over 0 and at most {_LONGEST_SECONDS:.0f} seconds, not {seconds:g}"
        )
    return timedelta(seconds=seconds)


def run_client(main: Callable[[Settings], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine that ends by itself; a signal interrupts it.

    Raises:
        KeyboardInterrupt: it was interrupted and has cleaned up.
    """
    settings = load_settings(quiet=True)
    with exporting():
        return run(lambda stop: unless_stopped(main(settings), stop))


def run_service(
    main: Callable[[Settings, asyncio.Event], Coroutine[Any, Any, T]], *, quiet: bool = False
) -> T:
    """Run a coroutine until a signal sets its event. With ``quiet``, only errors are logged."""
    settings = load_settings(quiet=quiet)
    with exporting():
        return run(lambda stop: main(settings, stop))


def load_settings(*, quiet: bool = False) -> Settings:
    """Load the settings and set up logs: errors only with ``quiet``, unless a level is configured.

    Raises:
        ConfigurationError: a setting is wrong or unknown; the message names its variable.
    """
    require_known(os.environ)
    try:
        settings = Settings()
    except (ValidationError, SettingsError) as error:
        raise ConfigurationError(wrong_setting(error)) from None
    keep_secret((value for _, value in settings), os.environ)
    chosen = "log_level" in settings.model_fields_set
    configure_logs(settings.log_format, "error" if quiet and not chosen else settings.log_level)
    return settings


def wrong_setting(error: ValidationError | SettingsError) -> str:
    """Describe a wrong setting in one line with its variable and, in a mapping, the key."""
    if isinstance(error, SettingsError):
        match = _FIELD.search(str(error))
        return _not_json(match[1] if match else "models")
    first = error.errors(include_url=False, include_input=False)[0]
    name, *keys = (str(part) for part in first["loc"])
    if not keys and first["type"] in _NOT_A_MAPPING:
        return _not_json(name)
    message = first["msg"]
    if first["type"] == "extra_forbidden":
        mapping = type(Settings.model_fields[name].default)
        message = f"not a key of this setting; there are: {', '.join(mapping.model_fields)}"
    where = ".".join(key for key in keys if key)
    return f"HEADRACE_{name.upper()}{where and f' ({where})'}: {message}"


def _not_json(name: str) -> str:
    """Describe a mapping that is not a JSON object."""
    [example] = Settings.model_fields[name].examples or [""]
    return f"HEADRACE_{name.upper()} must be a JSON object, as in {example}"


@contextmanager
def readiness_file(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Provide a function that creates the file with a text, for supervisors; it ends with this.

    Without a path, the function does nothing.
    """

    def announce(text: str) -> None:
        if path is not None:
            draft = path.with_suffix(".draft")
            draft.write_text(text)
            draft.replace(path)  # it appears with its text

    if path is not None:
        path.unlink(missing_ok=True)  # left by a predecessor that was killed
    try:
        yield announce
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T:
    """Return the result of ``work``.

    Raises:
        KeyboardInterrupt: ``stop`` was set first; the work was cancelled and has cleaned up.
    """
    task = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        if not task.done():
            await _cancel(task)
    if task.cancelled():
        raise KeyboardInterrupt
    return task.result()


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


def require_known(variables: Iterable[str]) -> None:
    """Check that each variable with the prefix HEADRACE_ is a setting, or belongs to `access`.

    Raises:
        UnknownSetting: a variable is not; the message names it and its replacement, or the most
            similar variable.
    """
    for variable in sorted(variables):
        name = variable.upper()
        if (
            not name.startswith(_PREFIX)
            or name in _SETTINGS
            or variable in ACCESS_VARIABLES
            or _OTHERS.fullmatch(name)
        ):
            continue
        raise UnknownSetting(
            f"{variable} is not a setting",
            f"{_remedy(name)} docs/reference/settings.md lists the settings",
        )


def _remedy(name: str) -> str:
    if name == "HEADRACE_BROKER_URL":
        return (
            "workers read from Redis only; for changes in Kafka set HEADRACE_BRIDGE and run "
            "`headrace worker --only bridge`;"
        )
    if name in _MOVED:
        setting, key = _MOVED[name]
        return f"""write it as {_PREFIX}{setting}='{{"{key}": …}}';"""
    names = [variable.removeprefix(_PREFIX) for variable in sorted(_SETTINGS | ACCESS_VARIABLES)]
    nearest = get_close_matches(name.removeprefix(_PREFIX), names, n=1)
    return f"did you mean {_PREFIX}{nearest[0]}?" if nearest else "unset it;"
