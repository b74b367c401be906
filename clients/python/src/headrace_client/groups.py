"""Groups of changes that fit one request, in the order in which they were added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import uuid4

from headrace_client import calls
from headrace_client.calls import Call
from headrace_client.events import ChangeEvent
from headrace_client.models import Lane, Receipt

__all__ = ["Groups"]

_MOST_EVENTS = 256
_MOST_BYTES = 4 * 2**20


@dataclass
class _Group:
    lane: Lane
    lines: list[bytes] = field(default_factory=list)
    size_bytes: int = 0

    def accepts(self, lane: Lane, line: bytes) -> bool:
        """Return whether a change fits. A group always takes its first change."""
        return not self.lines or (
            lane is self.lane
            and len(self.lines) < _MOST_EVENTS
            and self.size_bytes + len(line) <= _MOST_BYTES
        )

    def add(self, lane: Lane, line: bytes) -> None:
        self.lane = lane
        self.lines.append(line)
        self.size_bytes += len(line)


class Groups:
    """Changes of the batch ``id`` that are not sent; ``receipts`` are those of sent changes."""

    def __init__(self, project: str, batch_id: str | None, lane: Lane) -> None:
        self.project = project
        self.id = batch_id or str(uuid4())
        self.receipts: list[Receipt] = []
        self._lane = lane
        self._group = _Group(lane)

    def add(self, event: ChangeEvent) -> Iterator[Call[tuple[Receipt, ...]]]:
        """Add a change; yields the call that publishes the group before, if that is full."""
        line, lane = event.line(self.id), event.lane or self._lane
        if not self._group.accepts(lane, line):
            yield from self.rest()
        self._group.add(lane, line)

    def rest(self) -> Iterator[Call[tuple[Receipt, ...]]]:
        """Yield the call that publishes what is left, if anything is."""
        group, self._group = self._group, _Group(self._lane)
        if group.lines:
            yield calls.publish(self.project, b"".join(group.lines), group.lane)
