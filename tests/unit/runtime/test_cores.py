"""Cores that a process may use, and threads of the local model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from runtime.cores import model_threads, parser_processes, quota_cores, usable_cores
from runtime.settings import Settings


def _quota(tmp_path: Path, membership: str, files: Mapping[str, str]) -> float | None:
    for name, content in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    memberships = tmp_path / "cgroup"
    memberships.write_text(membership)
    return quota_cores(memberships, tmp_path / "groups")


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "400000 100000\n"}, 4),
        ("0::/a/b\n", {"a/b/cpu.max": "300000 100000\n", "a/cpu.max": "200000 100000\n"}, 2),
        ("0::/of/the/host\n", {"cpu.max": "200000 100000\n"}, 2),
        (
            "5:memory:/a\n4:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "50000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            0.5,
        ),
        (
            "4:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            None,
        ),
        ("", {}, None),
    ],
)
def test_the_least_quota_of_all_groups_holds(
    tmp_path: Path, membership: str, files: Mapping[str, str], cores: float | None
) -> None:
    """The smallest quota of all groups counts, in both versions of cgroups."""
    assert _quota(tmp_path, membership, files) == cores


def test_no_cgroups_means_no_quota(tmp_path: Path) -> None:
    """There is no quota without cgroups, as on other systems than Linux."""
    assert quota_cores(tmp_path / "missing", tmp_path) is None


def test_usable_cores_are_within_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The affinity limits the usable cores, and a quota limits them further."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 9}, raising=False)
    monkeypatch.setattr("runtime.cores.quota_cores", lambda *_: None)
    assert usable_cores() == 3
    monkeypatch.setattr("runtime.cores.quota_cores", lambda *_: 2.5)
    assert usable_cores() == 2
    monkeypatch.setattr("runtime.cores.quota_cores", lambda *_: 0.3)
    assert usable_cores() == 1


@pytest.mark.parametrize(
    ("cores", "workers", "threads"), [(1, 1, 1), (2, 1, 2), (2, 2, 1), (8, 3, 2), (64, 1, 8)]
)
def test_workers_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, workers: int, threads: int
) -> None:
    """Each worker gets its share of the cores: at least one thread, at most eight."""
    monkeypatch.setattr("runtime.cores.usable_cores", lambda: cores)
    assert model_threads(Settings(model_threads="auto"), workers) == threads
    assert model_threads(Settings(model_threads=3), workers) == 3
    assert parser_processes(Settings(chunking_processes="auto"), workers) == threads
    assert parser_processes(Settings(chunking_processes=3), workers) == 3
