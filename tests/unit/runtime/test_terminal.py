"""Terminal safety: no control characters in any output."""

from __future__ import annotations

import io
import json
import logging
import sys
from datetime import UTC, datetime

import pytest
import structlog
from rich.console import Console

from events.streams.dead_letters import DeadLetter
from gateway.commands import dead
from gateway.failures import one_line, report
from gateway.output import print_json, table
from runtime.errors import UsageError
from runtime.logs import configure_logs
from runtime.terminal import printable
from tests.support.hostile_values import CONTROLS

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def letter_of(event: bytes, detail: str) -> DeadLetter:
    return DeadLetter(
        event=event,
        topic="query.requested",
        partition=0,
        entry_id="1-0",
        group="answerer",
        error="MalformedEvent",
        detail=detail,
        attempts=1,
        first_at=NOW,
        last_at=NOW,
    )


def is_harmless(text: str) -> bool:
    return printable(text) == text


@pytest.mark.parametrize("hostile", CONTROLS)
def test_json_is_the_same_and_harmless(hostile: str, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON output has control characters escaped and decodes to the same text."""
    print_json({"content": hostile})
    shown = capsys.readouterr().out
    assert is_harmless(shown)
    assert json.loads(shown) == {"content": hostile}
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize("hostile", CONTROLS)
def test_an_error_is_one_harmless_line(
    hostile: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors are one printable line; a traceback at debug level has no control characters."""
    for error in (UsageError(f"no path {hostile}"), ValueError(hostile)):
        assert one_line(error).isprintable()
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "debug")
    report(ValueError(hostile))
    assert is_harmless(capsys.readouterr().err)


@pytest.mark.parametrize("hostile", CONTROLS)
def test_dead_letters_are_shown_harmlessly(
    hostile: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shown event has no control characters, and its lines can't imitate fields."""
    letter = letter_of(f"before{hostile}\n    error  Forged".encode(), detail=hostile)
    monkeypatch.setattr(dead, "_with_letters", lambda _: letter)
    dead.show(letter.id)
    shown = capsys.readouterr().out
    assert is_harmless(shown)
    assert sum(line.lstrip().startswith("error ") for line in shown.splitlines()) == 2
    assert sum(line.startswith("     error ") for line in shown.splitlines()) == 1
    listed = dead._lines(letter)
    assert is_harmless(listed)
    assert len(listed.splitlines()) == 2


@pytest.mark.parametrize("hostile", [*CONTROLS, "[/]", "[red]model[/red]"])
def test_names_in_status_are_shown_as_they_are(hostile: str) -> None:
    """A model's name is shown without markup and escape sequences."""
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as shown:
        console.print(table([{"project": "p", "model": hostile}]))
    assert is_harmless(shown.get())
    assert printable(hostile).splitlines()[0].strip() in shown.get()


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize("hostile", CONTROLS)
def test_logs_are_harmless(
    form: str, hostile: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs of the program and of libraries, and tracebacks, have no control characters."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    configure_logs("json" if form == "json" else "console", "warning")
    monkeypatch.setattr(root.handlers[0], "stream", sys.stderr)
    structlog.get_logger("ours").warning("chunking.parser_ended", uri=hostile)
    logging.getLogger("theirs").warning("about %s", hostile)
    structlog.get_logger("ours").warning("archiver.failed", exc_info=ValueError(hostile))
    structlog.reset_defaults()
    shown = capsys.readouterr().err
    assert "parser_ended" in shown
    assert is_harmless(shown)
