"""Lease of a source, so that only one process syncs it at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Set
from contextlib import asynccontextmanager
from datetime import timedelta
from operator import itemgetter
from typing import Any

from events.client.operator_client import OperatorClient
from gateway.progress import ShowProgress
from runtime.errors import SourceBusy, SourceLost, Unavailable, UsageError
from sources import IndexedDocument, Sync
from sources.state import DELETED, pending_of
from store.sources import LeasedSource, RegisteredSource, Sources
from store.store import Store

__all__ = ["LEASE", "Lease", "check_owners", "hold_lease"]

LEASE = timedelta(seconds=30)
"""After this time without renewal, another sync takes the source over."""

_LONGEST_WAIT = timedelta(seconds=60)
_POLL_SECONDS = 0.5


class Lease:
    """Lease of a source that is renewed until it is released."""

    def __init__(self, sources: Sources, leased: LeasedSource) -> None:
        self._sources = sources
        self._lost_error: SourceLost | None = None
        self._ended = False
        self.leased = leased

    def check(self) -> None:
        """Raise SourceLost if a renewal has shown that another sync took the source over."""
        if self._lost_error is not None:
            raise self._lost_error

    async def save(self, state: Mapping[str, Any]) -> None:
        """Replace the saved state; raise SourceLost if another sync has taken the source over."""
        await self._sources.renew(self.leased, LEASE, state)

    async def finish(self, state: Mapping[str, Any] | None, commit: str | None) -> None:
        """Save the state and release the lease; raises as ``save``.

        If ``state`` is None, the saved state stays as it is.
        """
        await self._sources.finish(self.leased, state, commit)
        self._ended = True

    async def renew_until_lost(self) -> None:
        """Renew the lease until another sync takes the source over."""
        while True:
            await asyncio.sleep(LEASE.total_seconds() / 3)
            try:
                await self._sources.renew(self.leased, LEASE)
            except SourceLost as error:
                self._lost_error = error
                return
            except Unavailable:
                continue

    async def release(self) -> None:
        """Release the lease unless it is finished; if that fails, the lease expires by itself."""
        if not self._ended:
            with contextlib.suppress(SourceLost, Unavailable):
                await self._sources.release(self.leased)


@asynccontextmanager
async def hold_lease(
    sources: Sources, source: RegisteredSource, client: OperatorClient, show: ShowProgress
) -> AsyncIterator[Lease]:
    """Hold the lease of a source; wait up to a minute for another sync to release it.

    Raises:
        SourceBusy: the other sync still holds it.
        Unavailable: a server can't be reached.
    """
    lease = Lease(sources, await _acquire(sources, source, client, show))
    renewal = asyncio.create_task(lease.renew_until_lost(), name="lease of a source")
    try:
        yield lease
    finally:
        renewal.cancel()
        await asyncio.wait([renewal])
        await lease.release()


async def _acquire(
    sources: Sources, source: RegisteredSource, client: OperatorClient, show: ShowProgress
) -> LeasedSource:
    now = asyncio.get_running_loop().time
    began_at, longest = now(), _LONGEST_WAIT.total_seconds()
    while True:
        try:
            return await sources.take(source, LEASE, await client.horizon())
        except SourceBusy as error:
            waited = now() - began_at
            if waited >= longest:
                raise
            show(f"waiting for {error.holder}", int(waited), int(longest) + 1, unit="s")
        await asyncio.sleep(_POLL_SECONDS)


async def check_owners(
    sync: Sync, indexed: Mapping[str, IndexedDocument], registered: RegisteredSource, store: Store
) -> None:
    """Raise UsageError if a document belongs to another source."""
    steps = (step for step in sync.steps if step.change != "delete" and step.uri not in indexed)
    added = {registered.uri_prefix + step.uri for step in steps}
    if not added:
        return
    # in this order: what a worker handles in between is then found by the second query
    others = await _pending_owners(added, registered, store)
    others |= (await store.sources.owners(registered, added)).others
    if others:
        uri, other = min(others.items(), key=itemgetter(0))
        more = len(others) - 1
        subject = f"{uri} and {more:,} more belong" if more else f"{uri} belongs"
        raise UsageError(
            f"{subject} to source {_describe(other)} of project {registered.project}, not to "
            f"{_describe(registered)}",
            _remedy(registered, other),
        )


async def _pending_owners(
    uris: Set[str], registered: RegisteredSource, store: Store
) -> dict[str, RegisteredSource]:
    """Documents that another source has published and no worker has handled yet, by uri."""
    owners: dict[str, RegisteredSource] = {}
    tokens: dict[str, str] = {}
    for other, saved in await store.sources.states_of_others(registered):
        for uri, (token, target) in pending_of(saved).items():
            if target != DELETED and other.uri_prefix + uri in uris:
                owners[other.uri_prefix + uri] = other
                tokens[other.uri_prefix + uri] = token
    handled = await store.sources.handled(registered.project, tokens.values()) if tokens else {}
    return {uri: owner for uri, owner in owners.items() if tokens[uri] not in handled}


def _remedy(registered: RegisteredSource, other: RegisteredSource) -> str:
    remedy = (
        "sync with --prefix NAME/ or into another project, or delete the other source "
        "(`headrace source delete`)"
    )
    if registered.kind == other.kind == "git":
        # the first commit identifies a repository, and a shallow clone lacks it
        return f"if this is a shallow clone, complete it (`git fetch --unshallow`); else {remedy}"
    return remedy


def _describe(source: RegisteredSource) -> str:
    is_path = source.name == source.location
    return source.name if is_path else f"{source.name} ({source.location})"
