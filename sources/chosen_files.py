"""Source that is limited to named files of another source."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from sources.types import Listing, Read, SizeLimits, Source

__all__ = ["ChosenFiles"]


class ChosenFiles:
    """Chosen files of another source, with the uris and permanent links that they have there.

    Chosen files that the source does not have are left out.
    """

    def __init__(self, source: Source, uris: Collection[str]) -> None:
        self._source = source
        self._uris = frozenset(uris)

    @property
    def kind(self) -> str:
        """Kind of the other source."""
        return self._source.kind

    @property
    def name(self) -> str:
        """Name of the other source, whose other files are therefore deleted by a sync."""
        return self._source.name

    @property
    def key(self) -> str:
        """Key of the other source."""
        return self._source.key

    @property
    def location(self) -> str:
        """Location of the other source."""
        return self._source.location

    def list(self, sizes: SizeLimits) -> Listing:
        """List the chosen files; raises as the other source does."""
        listing = self._source.list(sizes)
        chosen = {uri: mark for uri, mark in listing.files.items() if uri in self._uris}
        return replace(listing, files=chosen, skipped_paths={})

    def is_older(self, listing: Listing, commit: str, committed_at: int | None) -> bool:
        """Delegate to the other source."""
        return self._source.is_older(listing, commit, committed_at)

    def uncommitted(self, listing: Listing) -> int:
        """Return 0: uncommitted files are not counted, because most are not chosen."""
        del listing
        return 0

    def renames(self, commit: str | None, listing: Listing) -> Mapping[str, str]:
        """Old uri by new uri, for chosen files."""
        similar = self._source.renames(commit, listing)
        return {new: old for new, old in similar.items() if new in self._uris}

    def reader(self, sizes: SizeLimits) -> AbstractContextManager[Read]:
        """Reader of the other source."""
        return self._source.reader(sizes)
