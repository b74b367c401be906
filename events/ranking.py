"""Which of two changes of one document stands: the one rule of fence, folds and compaction."""

from __future__ import annotations

from events.models import Origin

__all__ = ["Rank", "rank_of"]

Rank = tuple[int, int, int]
"""Of two changes of one document, the one with the greater rank stands."""


def rank_of(position: int, partition: int, origin: Origin | None) -> Rank:
    """The rank of a change at a place of the log.

    A revision is a position too: a source's change counts as of the moment at which its sync began,
    however late it was published. So a publisher that stood still can't bring an old revision
    back, and every change can be compared with every other, in any order.
    """
    return position if origin is None else origin.revision, position, partition
