"""Report of a purge: what was removed, and what was not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["OUT_OF_REACH", "PurgeReport"]

OUT_OF_REACH = (
    "backups, replicas and archived logs of Postgres and Redis; older versions that the archive's "
    "storage keeps; blocks that a file system has freed; texts that were sent to a remote model"
)


@dataclass
class PurgeReport:
    """Report of a purge. ``removed`` describes what was removed, by place, in order of the work.

    ``remains`` gives the reasons why something is left. ``documents`` is their number, or None if
    the whole project was purged.
    """

    project: str
    documents: int | None
    removed: dict[str, str] = field(default_factory=dict)
    remains: list[str] = field(default_factory=list)

    def add_crowded(self, keys: Iterable[str]) -> None:
        """Note streams that still hold deleted entries in memory."""
        self.remains += [
            f"{key} still holds deleted entries in memory, beside entries that a group has not "
            "handled: run the purge again when `headrace status` shows no lag"
            for key in keys
        ]

    @property
    def is_complete(self) -> bool:
        """Return whether everything within reach was removed."""
        return not self.remains

    def as_json(self) -> dict[str, Any]:
        """Plain values, as the command prints them."""
        return {**asdict(self), "complete": self.is_complete, "out_of_reach": OUT_OF_REACH}
