"""What a reader says of a file of the archive that isn't as it was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.errors import OperatorError

__all__ = ["DamagedSegment", "Report", "raise_damage"]

_BLOCKS_NAMED = 5


class DamagedSegment(OperatorError):
    """A file of the archive is damaged or gone.

    ``path`` is the file in full, ``blocks`` counts from 0 and is empty where no single block can be
    blamed; ``lost``: how many of its events or contents can't be read.
    """

    def __init__(self, path: str, reason: str, blocks: Sequence[int] = (), lost: int = 0) -> None:
        self.path = path
        self.reason = reason
        self.blocks = tuple(blocks)
        self.lost = lost
        super().__init__(
            f"the archive's file {path}{self._where()} is damaged: {reason}; "
            f"{lost:,} entries can't be read: put it back from a backup of the archive"
        )

    def _where(self) -> str:
        if not self.blocks:
            return ""
        named = ", ".join(map(str, self.blocks[:_BLOCKS_NAMED]))
        more = ", …" if len(self.blocks) > _BLOCKS_NAMED else ""
        return f" (block {named}{more})"


Report = Callable[[DamagedSegment], None]
"""Told of each damaged file; reading goes on with what is whole."""


def raise_damage(error: DamagedSegment) -> None:
    """A report that doesn't let the reader go on.

    Raises:
        DamagedSegment: always.
    """
    raise error
