"""What a purge did, and what it could not do."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["OUT_OF_REACH", "PurgeReport"]

OUT_OF_REACH = (
    "backups, replicas and archived logs of Postgres and Redis; older versions that the archive's "
    "storage keeps; blocks that a file system has freed; what a remote model was sent"
)


@dataclass
class PurgeReport:
    """What was removed, by place, in the order of the work. ``remains``: why something is left."""

    project: str
    documents: int
    removed: dict[str, str] = field(default_factory=dict)
    remains: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left within reach."""
        return not self.remains

    def as_json(self) -> dict[str, Any]:
        """As the command prints it."""
        return {**asdict(self), "complete": self.is_complete, "out_of_reach": OUT_OF_REACH}
