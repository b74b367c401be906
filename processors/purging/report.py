"""What a purge did, and what it could not do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["OUT_OF_REACH", "PurgeReport"]

OUT_OF_REACH = (
    "backups, replicas and archived logs of Postgres and Redis; older versions that the archive's "
    "storage keeps; blocks that a file system has freed; what a remote model was sent"
)


@dataclass
class PurgeReport:
    """What was removed, by place, in the order of the work. ``remains``: why something is left.

    ``documents`` None: the whole project.
    """

    project: str
    documents: int | None
    removed: dict[str, str] = field(default_factory=dict)
    remains: list[str] = field(default_factory=list)

    def add_crowded(self, keys: Iterable[str]) -> None:
        """Note streams that entries were deleted from, and whose memory isn't free yet."""
        self.remains += [
            f"{key} holds entries that a group has not handled, and deleted ones beside them in "
            "memory: run the purge again when `headrace status` shows no lag"
            for key in keys
        ]

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left within reach."""
        return not self.remains

    def as_json(self) -> dict[str, Any]:
        """As the command prints it."""
        return {**asdict(self), "complete": self.is_complete, "out_of_reach": OUT_OF_REACH}
