"""The log of changes as it is read back: for the archive, and for replays."""

from __future__ import annotations

from dataclasses import dataclass

from events.models import DocumentChanged

__all__ = ["LoggedChange"]


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One change with its place in the log.

    ``position`` is the number that counts for the fence (``Position.number``; that of the first
    publication, where an event was redriven or republished).
    """

    partition: int
    position: int
    event: DocumentChanged

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: of two changes of one document, the greater one stands."""
        return self.position, self.partition
