"""Syncs that deliveries of webhooks ask for, without repositories."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.sync.hook_syncs import HookSyncs, hook_syncs
from runtime.settings import Settings


async def test_deliveries_whose_syncs_have_not_ended_count_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the gateway stops one sync that runs, and one that waits for it."""
    began = asyncio.Event()

    async def sync(_: HookSyncs, name: str) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(HookSyncs, "_sync", sync)
    failed: list[str] = []

    async def fail(delivery: str) -> None:
        failed.append(delivery)

    async with hook_syncs(Settings(home=tmp_path)) as syncs:
        syncs.ask("docs", lambda: fail("first"))
        await began.wait()
        syncs.ask("docs", lambda: fail("second"))
        syncs.ask("other", lambda: fail("third"))
        assert failed == []
    assert sorted(failed) == ["first", "second", "third"]


async def test_a_sync_that_has_ended_does_not_fail_its_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nothing expects fails it, and the next delivery is synced."""
    errors: list[Exception | None] = [RuntimeError("unexpected"), None]
    ended, failed = asyncio.Event(), asyncio.Event()

    async def sync(_: HookSyncs, name: str) -> None:
        error = errors.pop(0)
        if error is not None:
            raise error
        ended.set()

    async def fail() -> None:
        failed.set()

    monkeypatch.setattr(HookSyncs, "_sync", sync)
    async with hook_syncs(Settings(home=tmp_path)) as syncs:
        syncs.ask("docs", fail)
        await failed.wait()
        failed.clear()
        syncs.ask("docs", fail)
        await ended.wait()
    assert not failed.is_set()
