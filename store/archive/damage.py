"""Error and report for archive files that differ from what was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.errors import OperatorError

__all__ = ["DamagedSegment", "Report", "raise_damage"]

_BLOCKS_NAMED = 5


class DamagedSegment(OperatorError):
    """A file of the archive is damaged or gone.

    ``path`` is the full path. ``blocks``: numbers of the damaged blocks, from 0; empty if the
    damage is not in single blocks. ``lost``: number of events or contents that cannot be read.
    """

    def __init__(self, path: str, reason: str, blocks: Sequence[int] = (), lost: int = 0) -> None:
        self.path = path
        self.reason = reason
        self.blocks = tuple(blocks)
        self.lost = lost
        super().__init__(
            f"the archive's file {path}{self._where()} is damaged: {reason}; "
            f"{lost:,} entries cannot be read",
            "restore the file from a backup of the archive",
        )

    def _where(self) -> str:
        if not self.blocks:
            return ""
        named = ", ".join(map(str, self.blocks[:_BLOCKS_NAMED]))
        more = ", …" if len(self.blocks) > _BLOCKS_NAMED else ""
        return f" (block {named}{more})"


Report = Callable[[DamagedSegment], None]
"""Called for each damaged file; unless it raises, reading continues with what is intact."""


def raise_damage(error: DamagedSegment) -> None:
    """Raise the error, as a report that stops the reader at the first damaged file.

    Raises:
        DamagedSegment: always.
    """
    raise error
