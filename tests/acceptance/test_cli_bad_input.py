"""Bad input: one line with a remedy, exit code 1, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway import demonstration
from gateway.commands import demo
from runtime.embedded import EmbeddedPostgres
from runtime.errors import UsageError
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database, create_database
from tests.support.model_server import running_server, wide
from tests.support.processes import WorkerProcess

NOBODY_LISTENS = "127.0.0.1:1"


@pytest.fixture
def cli(redis_url: str, database: Database, tmp_path: Path) -> Cli:
    return Cli(environment_of(redis_url, database, tmp_path / "home"))


async def test_path_that_does_not_exist(cli: Cli, tmp_path: Path) -> None:
    """The error names the path and says that it must be a repository or a directory."""
    line = (await cli.typed("sync", str(tmp_path / "nowhere"))).line
    assert "nowhere doesn't exist; name a git repository or a directory" in line


async def test_file_is_no_source(cli: Cli, tmp_path: Path) -> None:
    """The error says that a git repository or a directory is needed."""
    (tmp_path / "one.md").write_text("# One")
    line = (await cli("sync", str(tmp_path / "one.md"))).line
    assert "is not a directory; name a git repository or a directory" in line


async def test_directory_that_is_no_repository_is_said_to_be_one(cli: Cli, tmp_path: Path) -> None:
    """A plain directory is synced, and the output calls it a directory."""
    (tmp_path / "plain").mkdir()
    result = await cli("sync", str(tmp_path / "plain"))
    assert result.code == 0
    assert result.stdout.startswith("directory ")


@pytest.mark.parametrize("name", ["../etc", "Upper", "", "a" * 64])
async def test_project_name_out_of_its_limits(cli: Cli, tmp_path: Path, name: str) -> None:
    """The error names the field."""
    assert "project" in (await cli("sync", str(tmp_path), "--project", name)).line


async def test_unknown_project(cli: Cli, redis_url: str, database: Database) -> None:
    """The error names the unknown project and the command that lists projects."""
    async with WorkerProcess(redis_url, database, {}, "--only", "answerer"):
        line = (await cli("ask", "--project", "nowhere", "anything")).line
    assert "nowhere" in line
    assert "headrace project list" in line


async def test_query_over_2000_characters(cli: Cli) -> None:
    """The error names the limit."""
    assert "2000 characters" in (await cli("ask", "x" * 2001)).line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--min-event", "yesterday"], "min_event"),
        (["--agent", "a b"], "agent: may have up to 128 characters"),
        (["--where", "foo =="], "--where 'foo ==': at the end: a value is missing"),
    ],
)
async def test_limits_out_of_range(cli: Cli, arguments: list[str], expected: str) -> None:
    """The error names the field that is out of range."""
    assert expected in (await cli("ask", "anything", *arguments)).line


async def test_numbers_out_of_range_are_wrong_usage(cli: Cli) -> None:
    """A number that no question may have is refused with exit code 2."""
    for command, option, number in (
        ("ask", "--limit", "0"),
        ("ask", "--limit", "101"),
        ("ask", "--min-similarity", "2"),
        ("ask", "--context", "31"),
        ("grep", "--context", "21"),
    ):
        result = await cli(command, "anything", option, number)
        assert (result.code, f"Invalid value for '{option}'" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "the question is empty; "),
        (["   "], "the question is empty; "),
        (["-path:*.md penguins"], "project 'ath:*.md penguins': the name may have up to 63 "),
        (["-penguins"], "the question is empty; "),
    ],
)
async def test_question_that_is_empty_or_read_as_an_option(
    cli: Cli, arguments: list[str], expected: str
) -> None:
    """The error says so, and how to give a question that begins with a minus sign."""
    line = (await cli("ask", "--project", "mine", *arguments)).line
    assert expected in line
    assert "before a text that begins with -, write --" in line


async def test_wrong_usage_exits_with_2(cli: Cli) -> None:
    """Unknown options, commands and values of an option exit with code 2."""
    assert (await cli("ask", "anything", "--mode", "guess")).code == 2
    assert (await cli("ask", "--no-such-option")).code == 2
    assert (await cli("no-such-command")).code == 2


@pytest.mark.parametrize("command", [["status"], ["dead", "list"], ["worker"]])
async def test_unreachable_redis(cli: Cli, command: list[str]) -> None:
    """The error names the setting of the URL."""
    line = (await cli(*command, HEADRACE_REDIS_URL=f"redis://{NOBODY_LISTENS}/0")).line
    assert "Redis can't be reached" in line
    assert "HEADRACE_REDIS_URL" in line


async def test_publishing_to_unreachable_redis(cli: Cli) -> None:
    """A publisher reports that Redis can't be reached."""
    event = '{"type":"document.changed","data":{"project":"p","uri":"u","content":"c"}}\n'
    url = f"redis://{NOBODY_LISTENS}/0"
    assert (
        "Redis can't be reached" in (await cli("publish", stdin=event, HEADRACE_REDIS_URL=url)).line
    )


@pytest.mark.parametrize("command", ["status", "worker", "migrate"])
async def test_unreachable_postgres(cli: Cli, command: str) -> None:
    """The error names the setting of the URL."""
    url = f"postgresql://someone@{NOBODY_LISTENS}/headrace"
    line = (await cli(command, HEADRACE_DATABASE_URL=url, HEADRACE_OWNER_DATABASE_URL=url)).line
    assert "Postgres can't be reached" in line
    assert "DATABASE_URL" in line


async def test_model_without_its_key(cli: Cli) -> None:
    """The worker doesn't start, and the error names the model and the missing key."""
    line = (
        await cli("worker", HEADRACE_MODEL="openai/text-embedding-3-small", OPENAI_API_KEY="")
    ).line
    assert "text-embedding-3-small" in line
    assert "key" in line.lower()


async def test_model_for_an_unknown_kind(cli: Cli) -> None:
    """A misspelt kind is refused; otherwise another model would embed its documents."""
    line = (await cli("worker", HEADRACE_MODELS='{"cod": "local/all-MiniLM-L6-v2"}')).line
    assert "unknown kind cod" in line
    assert "markdown" in line


async def test_wrong_vector_width(cli: Cli) -> None:
    """A model with vectors of the wrong width is refused when the worker starts."""
    async with running_server() as server:
        server.faults.extend([wide(16)] * 10)
        line = (
            await cli(
                "worker",
                HEADRACE_MODEL="openai/text-embedding-3-small",
                HEADRACE_MODEL_BASE_URL=server.base_url,
                HEADRACE_MODEL_API_KEY=server.key,
                HEADRACE_MODEL_DIMENSIONS="8",
            )
        ).line
    assert "16 wide where 8 are expected" in line


@pytest.mark.parametrize("command", ["status", "worker"])
async def test_missing_migration(
    cli: Cli, database: Database, postgres_server: EmbeddedPostgres, command: str
) -> None:
    """The error names the command that creates the schema."""
    name = f"{database.name}_bare"
    await create_database(postgres_server, name)
    line = (await cli(command, HEADRACE_DATABASE_URL=postgres_server.urls(name).worker)).line
    assert "run `headrace migrate`" in line


async def test_migrating_without_the_owner(cli: Cli) -> None:
    """The worker's role can't change the schema; the error names the setting of the owner's URL."""
    line = (await cli("migrate", HEADRACE_OWNER_DATABASE_URL="")).line
    assert "HEADRACE_OWNER_DATABASE_URL" in line


async def test_line_that_is_no_event(cli: Cli) -> None:
    """The error gives the number of the line and the wrong field."""
    event = '{"type":"document.changed","data":{"project":"p","uri":"u","content":"c"}}\n'
    line = (await cli("publish", stdin=event + '{"type":"document.changed","data":{}}\n')).line
    assert "line 2: document.changed: data.project" in line


async def test_line_that_is_no_text(cli: Cli) -> None:
    """Bytes that aren't UTF-8 are refused with the number of the line."""
    assert "line 1: " in (await cli("publish", stdin=b"\xff\xfe{}\n")).line


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1", "1e300"])
async def test_timeout_that_is_no_time(cli: Cli, seconds: str) -> None:
    """The error names the longest timeout."""
    assert "at most 86400 seconds" in (await cli("ask", "anything", "--timeout", seconds)).line
    assert "86400" in (await cli("publish", "--wait", "--timeout", seconds)).line


async def test_home_that_cannot_be_written(tmp_path: Path) -> None:
    """The error names the setting of the home directory."""
    (tmp_path / "file").touch()
    cli = Cli({"HEADRACE_HOME": str(tmp_path / "file"), "HEADRACE_REDIS_URL": ""})
    assert "set HEADRACE_HOME" in (await cli("status")).line


def test_demo_without_a_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package has no repository to index, so the demo asks for a directory."""
    monkeypatch.setattr(demonstration, "REPOSITORY", Path("/nowhere"))
    with pytest.raises(UsageError, match="name a directory"):
        demo.command()


async def test_wrong_setting(cli: Cli) -> None:
    """The error names the variable."""
    assert "HEADRACE_PARTITIONS" in (await cli("status", HEADRACE_PARTITIONS="0")).line
    assert "HEADRACE_LOG_LEVEL" in (await cli("status", HEADRACE_LOG_LEVEL="loud")).line
    assert "HEADRACE_LEASE" in (await cli("status", HEADRACE_LEASE="-5")).line
    assert "HEADRACE_MODELS" in (await cli("status", HEADRACE_MODELS="{code")).line
    assert "HEADRACE_STREAM_PREFIX" in (await cli("status", HEADRACE_STREAM_PREFIX="a{b")).line


async def test_unknown_dead_letter(cli: Cli) -> None:
    """The error names the command that lists dead letters, or the missing option."""
    assert "headrace dead list" in (await cli("dead", "show", "nonsense")).line
    assert "--all" in (await cli("dead", "drop")).line


async def test_worker_without_servers(tmp_path: Path) -> None:
    """A worker does not start servers; the error names the command that does."""
    cli = Cli({"HEADRACE_HOME": str(tmp_path), "HEADRACE_REDIS_URL": ""})
    assert "headrace up" in (await cli("worker")).line
