"""Rank of a change: the single ordering rule of the fence, of folds and of compaction."""

from __future__ import annotations

from events.models import Origin

__all__ = ["Rank", "rank_of"]

Rank = tuple[int, int, int]
"""Rank of a change: of two changes of one document, the one with the greater rank wins."""


def rank_of(position: int, partition: int, origin: Origin | None) -> Rank:
    """Return the rank of a change at a log position.

    A revision is a position too: a source's change counts as of the moment at which its sync began,
    however late it was published. So a publisher that was suspended can't restore an old revision,
    and any two changes can be compared, in any order.
    """
    return position if origin is None else origin.revision, position, partition
