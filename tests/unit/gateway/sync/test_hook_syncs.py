"""Syncs of webhooks' repositories, without repositories."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.sync import hook_syncs as module
from gateway.sync.hook_syncs import HookSyncs, hook_syncs
from runtime.errors import LogFull, Unavailable
from runtime.intervals import Backoff
from runtime.settings import Settings
from tests.support.waiting import patience

HOOK = {"secret": "a secret of the host", "repository": "/repository"}


async def test_each_hook_is_synced_at_the_start_and_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors that nothing expects do not end the syncs of a hook."""
    errors: dict[str, list[Exception]] = {
        "docs": [RuntimeError("unexpected"), Unavailable("no network")],
        "other": [],
    }
    synced: asyncio.Queue[str] = asyncio.Queue()

    async def sync(_: HookSyncs, name: str) -> None:
        if errors[name]:
            raise errors[name].pop()
        synced.put_nowait(name)

    monkeypatch.setattr(HookSyncs, "_sync", sync)
    monkeypatch.setattr(module, "_BACKOFF", Backoff(timedelta(0), timedelta(0)))
    settings = Settings(home=tmp_path, gateway={"hooks": {"docs": HOOK, "other": HOOK}})
    async with hook_syncs(settings):
        assert {await synced.get(), await synced.get()} == {"docs", "other"}
    assert errors["docs"] == []


async def test_a_delivery_counts_when_its_sync_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not count if its sync fails, or is stopped with the gateway."""
    began: asyncio.Queue[str] = asyncio.Queue()
    results: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def sync(_: HookSyncs, name: str) -> None:
        began.put_nowait(name)
        if (error := await results.get()) is not None:
            raise error

    monkeypatch.setattr(HookSyncs, "_sync", sync)
    ended: asyncio.Queue[str] = asyncio.Queue()
    async with hook_syncs(Settings(home=tmp_path, gateway={"hooks": {"docs": HOOK}})) as syncs:

        def deliver(number: str) -> None:
            syncs.ask("docs", lambda: ended.put(number))

        await began.get()
        deliver("first")
        deliver("second")
        results.put_nowait(None)
        await began.get()
        assert ended.empty(), "the sync at the start began before the deliveries"
        deliver("third")
        results.put_nowait(None)
        assert [await ended.get(), await ended.get()] == ["first", "second"]
        await began.get()
        results.put_nowait(Unavailable("no network"))
        deliver("fourth")
        await began.get()
    assert ended.empty()


async def test_a_full_redis_does_not_end_the_syncs_of_a_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery that can't be remembered may be repeated; the next one leads to a sync."""
    began: asyncio.Queue[str] = asyncio.Queue()

    async def sync(_: HookSyncs, name: str) -> None:
        began.put_nowait(name)

    async def remember() -> None:
        raise LogFull("Redis is at its memory limit")

    monkeypatch.setattr(HookSyncs, "_sync", sync)
    async with hook_syncs(Settings(home=tmp_path, gateway={"hooks": {"docs": HOOK}})) as syncs:
        for _ in range(3):
            await asyncio.wait_for(began.get(), patience(10))
            syncs.ask("docs", remember)
