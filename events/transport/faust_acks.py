"""Interception of Faust's own acknowledgements, at a point that all of its code paths use.

Faust remembers acknowledged offsets in ``Consumer._acked`` and commits the highest one without a
gap below it, which loses work that is still in flight. Its compiled stream iterator appends to the
lists in that mapping and calls no method of the consumer, so the mapping is replaced.
"""

from __future__ import annotations

from collections.abc import Callable

from faust.types import TP

__all__ = ["AckLog", "NoOffsets"]

OnAck = Callable[[TP, int], None]


class _AckList(list[int]):
    def __init__(self, tp: TP, on_ack: OnAck) -> None:
        super().__init__()
        self._tp = tp
        self._on_ack = on_ack

    def append(self, offset: int, /) -> None:
        self._on_ack(self._tp, offset)


class AckLog(dict[TP, _AckList]):
    """Passes each acknowledged offset on, and stores none."""

    def __init__(self, on_ack: OnAck) -> None:
        super().__init__()
        self._on_ack = on_ack

    def __missing__(self, tp: TP) -> _AckList:
        return self.setdefault(tp, _AckList(tp, self._on_ack))


class NoOffsets(dict[TP, None]):
    """A mapping without any offset: reclaimed entries are older than the last read one."""

    def __missing__(self, tp: TP) -> None:
        return None

    def __setitem__(self, tp: TP, offset: object) -> None:
        pass

    def update(self, *offsets: object, **more: object) -> None:
        """Ignore the offsets."""
