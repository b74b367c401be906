"""``headrace bench peers`` with few files, Headrace as the only peer that runs."""

from __future__ import annotations

import pytest

from bench.peers import comparison, side
from bench.peers.environments import Environment, environment_of
from bench.peers.side import Scale
from runtime.errors import Unavailable, UsageError

SCALE = Scale(rounds=1, questions=4, blocks=2, warm_up=1, killed=3, reported_s=0.0)
STEPS = ("cold", "latency", "noop", "edit", "rename", "delete", "order", "kill")


async def environment(peer: str) -> Environment:
    """Environment of Headrace; that of any other peer can't be made."""
    if peer != "headrace":
        raise Unavailable("no environment: no network")
    return await environment_of(peer)


async def test_steps_are_taken_without_the_peers_that_can_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Headrace has no faults after any step, and the column of the other peer says what failed."""
    monkeypatch.setattr(side, "environment_of", environment)
    shown: list[str] = []
    report = await comparison.measure(
        (), shown.append, peers=["langchain", "headrace"], files=10, steps=STEPS, scale=SCALE
    )
    assert report.columns["langchain"] == {"failed": "start"}
    assert report.figures["langchain_failure"] == "no environment: no network"
    assert str(report.figures["headrace_versions"]).startswith("headrace ")
    figures = report.columns["headrace"]
    assert "failed" not in figures, report.figures
    faults = {name: value for name, value in figures.items() if name.endswith("_faults")}
    assert faults == {f"{step}_faults": "none" for step in STEPS if step != "latency"}
    assert float(figures["cold_chunks"]) == float(figures["cold_embedded"]) > 10
    assert figures["noop_embedded"] == figures["delete_embedded"] == 0
    assert float(figures["edit_embedded"]) >= 1
    assert float(figures["rename_files"]) >= 1
    for mode in ("hybrid", "vector", "keyword"):
        assert 0 < float(figures[f"{mode}_p50_ms"]) <= float(figures[f"{mode}_p99_ms"])
    assert float(figures["cold_wal_mb"]) > 0
    starts = ["headrace: start", "langchain: start"]
    assert shown == [*starts, *(f"{name}: headrace" for name in STEPS)]


async def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="no peer 'nothing'"):
        await comparison.measure(peers=["nothing"])
    with pytest.raises(UsageError, match="no step 'nothing'"):
        await comparison.measure(steps=["nothing"])
