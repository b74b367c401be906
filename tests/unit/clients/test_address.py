"""Order in which a client finds its gateway and its key."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headrace_client import AsyncHeadrace, ConfigurationError, Headrace
from headrace_client.address import Address, find_address

LOCAL = "http://127.0.0.1:8420"
OTHER = "https://headrace.example"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("HEADRACE_URL", "HEADRACE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def up(home: Path) -> None:
    """A running ``headrace up``."""
    announce(home, os.getpid())


def announce(home: Path, pid: int) -> None:
    (home / "up.json").write_text(json.dumps({"pid": pid, "gateway_url": LOCAL}))
    (home / "api-key").write_text("hr_local\n")


@pytest.mark.usefixtures("up")
def test_without_anything_a_running_up_is_used() -> None:
    assert find_address() == Address(LOCAL, "hr_local")


@pytest.mark.usefixtures("up")
def test_the_environment_precedes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_URL", f"{OTHER}/")
    monkeypatch.setenv("HEADRACE_API_KEY", "hr_other")
    assert find_address() == Address(OTHER, "hr_other")
    assert find_address(LOCAL, "hr_given") == Address(LOCAL, "hr_given")


@pytest.mark.usefixtures("up")
def test_the_key_of_up_is_not_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="no API key is given for https://headrace"):
        find_address(OTHER)
    monkeypatch.setenv("HEADRACE_URL", LOCAL)
    assert find_address().api_key == "hr_local"


def test_an_up_that_was_killed_is_not_used(home: Path) -> None:
    """Its port may belong to a program of someone else."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    announce(home, child)
    with pytest.raises(ConfigurationError, match="no `headrace up` runs"):
        find_address()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "gateway_url": 3}'])
def test_a_broken_announcement_is_no_up(home: Path, text: str) -> None:
    (home / "up.json").write_text(text)
    with pytest.raises(ConfigurationError, match="no `headrace up` runs"):
        find_address()


@pytest.mark.parametrize("url", ["redis://localhost:6379", "localhost:8420", "http://", "ftp://a"])
@pytest.mark.parametrize("client", [Headrace, AsyncHeadrace])
def test_an_address_is_an_http_url(client: type[Headrace] | type[AsyncHeadrace], url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the address of a gateway"):
        client(url, "hr_key")


@pytest.mark.parametrize("key", ["hr_\n", "hr_ä"])
def test_a_key_is_printable(key: str) -> None:
    with pytest.raises(ConfigurationError, match="characters"):
        find_address(LOCAL, key)


def test_a_key_is_not_shown() -> None:
    assert "hr_secret" not in repr(find_address(LOCAL, "hr_secret"))


@pytest.mark.parametrize(
    ("url", "local"),
    [(LOCAL, True), ("http://localhost:1", True), ("http://[::1]:1", True), (OTHER, False)],
)
def test_a_proxy_of_the_environment_is_for_other_machines(url: str, local: bool) -> None:
    assert Address(url, "").is_local == local
