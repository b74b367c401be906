"""Environments of the peers."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import environments
from bench.peers.environments import PACKAGES, PEERS, Environment, environment_of
from runtime.errors import Unavailable
from tests.support.forking import ROOT


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Commands that make environments, in place of running them."""
    commands: list[tuple[str, ...]] = []

    async def run(*command: str) -> None:
        commands.append(command)
        if "absent==1" in command:
            raise Unavailable("no environment: no network")
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  # in place of a process

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environments, "_run", run)
    return commands


async def test_an_environment_is_made_once_for_its_packages(
    made: list[tuple[str, ...]], tmp_path: Path
) -> None:
    first = await environment_of("cocoindex", ["package==1"])
    assert await environment_of("cocoindex", ["package==1"]) == first
    assert [command[-1] for command in made] == [str(Path(first.python).parents[1]), "package==1"]
    other = await environment_of("cocoindex", ["package==2"])
    assert other.python != first.python
    assert Path(other.python).is_relative_to(tmp_path)


async def test_an_environment_that_can_not_be_made_is_tried_again(
    made: list[tuple[str, ...]],
) -> None:
    for _ in range(2):
        with pytest.raises(Unavailable, match="no network"):
            await environment_of("langchain", ["absent==1"])
    assert ["absent==1" in command for command in made] == [False, True, False, True]


def test_a_peer_sees_the_adapters_and_nothing_else_of_ours(tmp_path: Path) -> None:
    environment = Environment("langchain", "python")
    path = Path(environment.variables(tmp_path)["PYTHONPATH"])
    assert [entry.name for entry in path.iterdir()] == ["bench"]
    assert (path / "bench" / "peers" / "protocol.py").is_file()


async def test_headrace_runs_in_this_environment() -> None:
    environment = await environment_of("headrace")
    assert environment.command[1:] == ["-P", "-m", "bench.peers.adapters.headrace"]
    assert not environment.needs_postgres


def test_every_peer_has_an_adapter_and_exact_versions() -> None:
    adapters = {path.stem for path in (ROOT / "bench/peers/adapters").glob("[!_]*.py")}
    assert adapters == set(PEERS)
    assert all("==" in package for packages in PACKAGES.values() for package in packages)
