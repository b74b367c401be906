"""Output and options of ``headrace bench``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from bench.figures import Report
from bench.peers import comparison
from gateway.commands.bench import Measurement, command
from runtime.errors import UsageError


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """Arguments of comparisons, which report two columns without running."""
    calls: list[Mapping[str, Any]] = []

    async def measure(_sets: object, _show: object, **options: Any) -> Report:
        calls.append(options)
        columns: dict[str, dict[str, float | str]] = {
            "headrace": {"noop_cpu_s": 0.2},
            "cocoindex": {"failed": "start"},
        }
        return Report("peers", {"files": 10, "cocoindex_failure": "no network"}, columns=columns)

    monkeypatch.setattr(comparison, "measure", measure)
    return calls


def test_a_comparison_has_a_column_for_each_system(
    compared: list[Mapping[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    command(Measurement.PEERS, peers="headrace, cocoindex", files=10, steps="noop")
    assert compared == [{"peers": ["headrace", "cocoindex"], "steps": ["noop"], "files": 10}]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["cocoindex_failure", "no", "network"] in lines
    assert ["figure", "headrace", "cocoindex"] in lines
    assert ["noop_cpu_s", "0.2"] in [line[:2] for line in lines]
    assert [line[-1] for line in lines if line[:1] == ["failed"]] == ["start"]


def test_json_has_the_columns(
    compared: list[Mapping[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    command(Measurement.PEERS, json=True)
    assert compared == [{"peers": [], "steps": []}]
    report = json.loads(capsys.readouterr().out)
    assert report["columns"]["headrace"] == {"noop_cpu_s": 0.2}
    assert report["figures"]["files"] == 10


def test_options_of_the_comparison_are_for_it_alone() -> None:
    with pytest.raises(UsageError, match="compares no systems"):
        command(Measurement.LANES, files=10)
