"""Command line: its commands, its start and its errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from content.registry import EXTRACTORS
from events.models import DOCUMENT_KINDS
from gateway import main
from gateway.processes.forked_command import COMMANDS
from processors.chunking.registry import CHUNKERS
from tests.support.forking import ROOT

START = (sys.executable, "-P", "-m", "gateway.main")

INTERRUPTED_IMPORT = """
import sys
from importlib.abc import MetaPathFinder

class Interruption(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise {error}

sys.meta_path.insert(0, Interruption())
sys.argv[1:] = ["status"]
from gateway.main import run
run()
"""


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **variables}


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=environment(**variables))


def test_only_kinds_that_exist_are_offered() -> None:
    """Each kind that is offered has a chunker or an extractor."""
    assert {kind.value for kind in DOCUMENT_KINDS} == {*CHUNKERS, *EXTRACTORS}


@pytest.mark.parametrize(
    "module", ["gateway.processes.forked_command", "typer", "gateway.commands.status"]
)
def test_ctrl_c_while_modules_load(module: str) -> None:
    """Ctrl-C during the imports prints no traceback."""
    code = INTERRUPTED_IMPORT.format(name=module, error="KeyboardInterrupt")
    done = run(sys.executable, "-c", code)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "")


def test_a_module_that_cannot_be_loaded() -> None:
    """A module that fails to import is reported in one line."""
    code = INTERRUPTED_IMPORT.format(
        name="gateway.commands.status", error='ImportError("no such thing")'
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 1
    assert done.stderr.startswith("headrace: unexpected ImportError: no such thing;")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed(closed: str) -> None:
    """A command with closed standard streams runs and returns its exit code."""
    command = f"{sys.executable} -P -m gateway.main logs {closed}"
    done = run("sh", "-c", command, HEADRACE_HOME="/nowhere")
    assert done.returncode == 1


def test_its_version() -> None:
    assert run(*START, "--version").stdout.startswith("headrace ")


def test_a_shell_completes_options_of_a_command() -> None:
    """The shell completes options of commands, whose modules are loaded on demand."""
    words = {"COMP_WORDS": "headrace up --de", "COMP_CWORD": "2"}
    done = run(*START, _HEADRACE_COMPLETE="complete_bash", **words)
    assert done.stdout.split() == ["--detach"]


def test_an_unknown_setting_is_wrong_usage() -> None:
    """An unknown setting is reported in one line with exit code 2."""
    done = run(*START, "status", HEADRACE_MODLE="x")
    assert done.returncode == 2
    assert done.stderr.startswith("headrace: HEADRACE_MODLE is not a setting; did you mean")


def test_a_question_needs_no_modules_of_the_index() -> None:
    """Imports are most of the time of a short command."""
    heavy = ("asyncpg", "numpy", "pgvector", "processors", "sqlalchemy", "store", "tokenizers")
    code = (
        "import sys, gateway.main as main; main.application(['ask']);"
        f"print(*[name for name in {heavy!r} if name in sys.modules])"
    )
    done = run(sys.executable, "-P", "-c", code)
    assert (done.returncode, done.stdout.split()) == (0, [])


def test_the_client_of_a_running_up_imports_few_modules() -> None:
    """Nearly all the time of a forwarded command in its own process is imports."""
    heavy = ("asyncio", "dataclasses", "pathlib", "typing")
    code = (
        "import sys, gateway.main, gateway.processes.forked_command;"
        f"print(*[name for name in {heavy!r} if name in sys.modules])"
    )
    done = run(sys.executable, "-S", "-P", "-c", code, PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout.split()) == (0, [])


def test_what_is_prepared_is_used_for_each_of_its_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that is built before its arguments are known takes any of them, repeatedly."""
    monkeypatch.setattr(main, "_prepared", {})
    main.prepare(sorted(COMMANDS))
    monkeypatch.setattr(main, "application", None)  # nothing is built any more
    helps = []
    for arguments in (["grep", "--help"], ["sync", "--help"], ["grep", "--help"]):
        assert main.run_here(arguments) == 0
        helps.append(capsys.readouterr().out)
    assert main.run_here(["grep", "--no-such-option"]) == 2
    assert helps[0] == helps[2] != helps[1]
