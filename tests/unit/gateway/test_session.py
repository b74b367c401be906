"""Errors for invalid settings, and files of ready processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsError

from events.server.acl import Role
from gateway import servers
from gateway.servers import announce, find_running
from gateway.session import linked_work_tree, readiness_file, require_known, wrong_setting
from processors.recipes import rate_limits
from runtime.errors import UnknownSetting
from runtime.settings import LOCAL_MODEL, Settings


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("CONCURRENCY", "0", "HEADRACE_CONCURRENCY: Input should be greater than 0"),
        ("MODEL_REQUESTS", '{"failures": 0}', "HEADRACE_MODEL_REQUESTS (failures): Input"),
        ("RERANK", '{"candidates": 1}', "HEADRACE_RERANK (candidates): Input should be greater"),
        (
            "MODEL_RATE_LIMITS",
            '{"requests_per_minute": 0}',
            "HEADRACE_MODEL_RATE_LIMITS (requests_per_minute): Input",
        ),
        (
            "MODEL_RATE_LIMITS",
            '{"tokens_per_minute": {"voyage": 0}}',
            "HEADRACE_MODEL_RATE_LIMITS (tokens_per_minute.voyage):",
        ),
        ("MODEL_RATE_LIMITS", "many", 'must be a JSON object, as in {"requests_per_minute": 300,'),
        ("CHUNKING_LIMITS", '{"timeout": "-1"}', "HEADRACE_CHUNKING_LIMITS (timeout): Input"),
        ("VECTOR_SEARCH", '{"ef_search": 9}', "HEADRACE_VECTOR_SEARCH (ef_search): Input"),
        ("LIMITS", '{"results": 9}', "HEADRACE_LIMITS (results): Input should be greater"),
        ("LIMITS", "512", 'HEADRACE_LIMITS must be a JSON object, as in {"uri_bytes": 512,'),
        (
            "LIMITS",
            '{"uri_bites": 512}',
            "HEADRACE_LIMITS (uri_bites): not a key of this setting; there are: event_bytes, uri_",
        ),
        ("MODELS", "code", 'HEADRACE_MODELS must be a JSON object, as in {"code":'),
    ],
)
def test_the_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    """The error names the variable and does not repeat its value."""
    monkeypatch.setenv(f"HEADRACE_{variable}", value)
    with pytest.raises((ValidationError, SettingsError)) as refused:
        Settings()
    assert isinstance(refused.value, ValidationError | SettingsError)
    assert told in wrong_setting(refused.value)


def test_an_empty_home_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory is not taken for the home if the variable is empty."""
    monkeypatch.delenv("HEADRACE_HOME", raising=False)
    home = Settings().home
    monkeypatch.setenv("HEADRACE_HOME", "")
    assert Settings().home == home == Path("~/.headrace")


def test_a_linked_work_tree_is_recognised_by_its_mark(tmp_path: Path) -> None:
    """The root is found from any folder; neither a repository nor a submodule is linked."""
    marks = {
        "linked": "gitdir: /code/.git/worktrees/next\n",
        "module": "gitdir: ../.git/modules/m\n",
    }
    for name, mark in marks.items():
        (tmp_path / name / "docs").mkdir(parents=True)
        (tmp_path / name / ".git").write_text(mark)
    (tmp_path / "linked" / "inner" / ".git").mkdir(parents=True)
    for path, root in {"linked": "linked", "linked/docs": "linked", "linked/inner": None}.items():
        expected = None if root is None else str(tmp_path / root)
        assert linked_work_tree(tmp_path / path) == expected, path
    for path in ("module/docs", "missing"):
        assert linked_work_tree(tmp_path / path) is None, path
    (tmp_path / "linked" / ".git").write_bytes(b"\xff")
    assert linked_work_tree(tmp_path / "linked") is None


def test_a_number_is_the_limit_of_every_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number instead of a mapping is the limit of every provider."""
    monkeypatch.setenv("HEADRACE_MODEL_RATE_LIMITS", '{"requests_per_minute": 300}')
    assert rate_limits(Settings()).requests_per_minute == {"": 300}


@pytest.mark.parametrize(
    ("variable", "remedy"),
    [
        ("HEADRACE_MODLE", "did you mean HEADRACE_MODEL?"),
        ("HEADRACE_REDIS_URI", "did you mean HEADRACE_REDIS_URL?"),
        ("headrace_batch_document", "did you mean HEADRACE_BATCH_DOCUMENTS?"),
        ("HEADRACE_XYZZY", "unset it"),
        ("headrace_worker_password", "did you mean HEADRACE_WORKER_PASSWORD?"),
        ("HEADRACE_MAX_URI_BYTES", "write it as HEADRACE_LIMITS='{\"uri_bytes\": …}';"),
        ("HEADRACE_BROKER_URL", "workers read from Redis only; for changes in Kafka set "),
        ("HEADRACE_CHUNKING_TIMEOUT", "write it as HEADRACE_CHUNKING_LIMITS='{\"timeout\": …}';"),
        ("HEADRACE_HNSW_EF_SEARCH", "write it as HEADRACE_VECTOR_SEARCH='{\"ef_search\": …}';"),
    ],
)
def test_a_variable_that_is_no_setting(variable: str, remedy: str) -> None:
    """A variable that is not a setting is an error with a suggestion."""
    with pytest.raises(UnknownSetting, match=re.escape(f"{variable} is not a setting; {remedy}")):
        require_known(["PATH", "HEADRACE_HOME", variable])


@pytest.mark.parametrize(
    "variable",
    [
        "headrace_home",
        "HEADRACE_PASSWORDS_DIRECTORY",
        *(f"HEADRACE_{role.upper()}_PASSWORD" for role in Role),
        "HEADRACE_TEST_SEEDS",
        "HEADRACE_MCP_RESULTS",
        "HEADRACE_SERVICE_HOST",
        "HEADRACE_REDIS_PORT_6379_TCP_ADDR",
        "HEADRACE_REDIS_SERVICE_PORT_REDIS",
        "HEADRACE_PORT",
    ],
)
def test_variables_that_others_set(variable: str) -> None:
    """Variables that Kubernetes sets, and passwords of roles, are accepted."""
    require_known([variable])


def test_a_file_exists_while_a_process_is_ready(tmp_path: Path) -> None:
    """It appears with its text, replaces that of a killed predecessor, and nothing else remains."""
    path = tmp_path / "gateway.ready"
    path.write_text("http://127.0.0.1:1")
    with readiness_file(path) as announce:
        assert not path.exists()
        announce("http://127.0.0.1:2")
        assert path.read_text() == "http://127.0.0.1:2"
        assert [*tmp_path.iterdir()] == [path]
    assert [*tmp_path.iterdir()] == []


def test_without_a_file_readiness_is_not_announced(tmp_path: Path) -> None:
    with readiness_file(None) as announce:
        announce("")
    assert [*tmp_path.iterdir()] == []


def test_another_process_gets_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets, also those within a mapping, and durations pass the environment unchanged."""
    hook = {"secret": "a secret of some length", "repository": "https://git.example.org/a.git"}
    settings = Settings.model_validate(
        {
            "home": tmp_path,
            "lease": "PT7S",
            "models": {"code": "local/hash-384"},
            "signing_key": "id:secret",
            "vector_search": {"exact_chunks": 5},
            "bridge": {"brokers": ["kafka:9092"], "user": "u", "password": "of the bridge"},
            "gateway": {"hooks": {"own": hook}},
        }
    )
    for name, value in settings.variables().items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings
    assert "of some length" not in settings.model_dump_json() + repr(settings)


@pytest.mark.parametrize(
    ("own", "expected"),
    [({}, "local/hash-384"), ({"models": {"code": "local/hash-256"}}, LOCAL_MODEL)],
)
def test_commands_have_the_models_of_the_running_up(
    own: dict[str, Any], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new project has the same models whichever shell creates it, unless a shell has its own."""
    monkeypatch.setattr(servers, "command_of", lambda _: "headrace up")
    directory = tmp_path / "model"
    up = Settings(home=tmp_path, model="local/hash-384", model_directory=directory)
    with announce(up):
        running = find_running(Settings(home=tmp_path, **own))
    assert running is not None
    assert running.model == expected
    assert running.model_directory == (None if own else directory)
    assert find_running(up) is None
