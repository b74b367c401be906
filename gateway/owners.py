"""Check that a sync changes no documents of another source."""

from __future__ import annotations

from collections.abc import Mapping, Set
from operator import itemgetter

from runtime.errors import UsageError
from sources import Held, Sync
from sources.state import GONE, pending_of
from store.sources import RegisteredSource
from store.store import Store

__all__ = ["check_owners"]


async def check_owners(
    sync: Sync, held: Mapping[str, Held], registered: RegisteredSource, store: Store
) -> None:
    """Raise UsageError if a document belongs to another source."""
    steps = (step for step in sync.steps if step.change != "delete" and step.uri not in held)
    added = {registered.uri_prefix + step.uri for step in steps}
    if not added:
        return
    # in this order: what a worker handles in between is then found by the second look
    others = await _soon_of_others(added, registered, store)
    others |= (await store.sources.owners(registered, added)).others
    if others:
        uri, other = min(others.items(), key=itemgetter(0))
        what = f"{uri} and {len(others) - 1:,} more belong" if len(others) > 1 else f"{uri} belongs"
        raise UsageError(
            f"{what} to source {_named(other)} of project {registered.project}, not to "
            f"{_named(registered)}; sync with --prefix NAME/ or into another project, or "
            "delete the other source (`headrace source delete`)"
        )


async def _soon_of_others(
    uris: Set[str], registered: RegisteredSource, store: Store
) -> dict[str, RegisteredSource]:
    """Documents that another source has published and no worker has handled yet, by uri."""
    owners: dict[str, RegisteredSource] = {}
    tokens: dict[str, str] = {}
    for other, saved in await store.sources.states_of_others(registered):
        for uri, (token, wanted) in pending_of(saved).items():
            if wanted != GONE and other.uri_prefix + uri in uris:
                owners[other.uri_prefix + uri] = other
                tokens[other.uri_prefix + uri] = token
    handled = await store.sources.handled(registered.project, tokens.values()) if tokens else {}
    return {uri: owner for uri, owner in owners.items() if tokens[uri] not in handled}


def _named(source: RegisteredSource) -> str:
    is_path = source.name == source.location
    return source.name if is_path else f"{source.name} ({source.location})"
