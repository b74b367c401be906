"""What is remembered of a source from one sync to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from sources.types import Skip

__all__ = ["UNSURE", "State"]

UNSURE = "?"
"""Before a fingerprint: this document may or may not have been published since."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class State:
    """A source as it was published last.

    Attributes:
        epoch: random name of the series of syncs, so that a series that starts anew (its state was
            lost) never looks like an old one.
        sequence: number of the sync in its series.
        documents: fingerprint by uri of what is published.
        skipped: fingerprint and reason by uri of what had to be read to be skipped.
        commit: that ``documents`` were read at.
        target: digest of the listing that a sync under way publishes; empty when it is through.
        rules: digest of what decided which files are documents.
    """

    epoch: str
    sequence: int
    documents: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, tuple[str, Skip]] = field(default_factory=dict)
    commit: str | None = None
    target: str = ""
    rules: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "version": _VERSION,
            "epoch": self.epoch,
            "sequence": self.sequence,
            "documents": dict(self.documents),
            "skipped": {uri: [mark, reason.value] for uri, (mark, reason) in self.skipped.items()},
            "commit": self.commit,
            "target": self.target,
            "rules": self.rules,
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any] | None) -> Self | None:
        """Inverse of ``to_json``; None for nothing, or a state of another version."""
        if saved is None or saved.get("version") != _VERSION:
            return None
        return cls(
            epoch=saved["epoch"],
            sequence=saved["sequence"],
            documents=saved["documents"],
            skipped={uri: (mark, Skip(reason)) for uri, (mark, reason) in saved["skipped"].items()},
            commit=saved["commit"],
            target=saved["target"],
            rules=saved.get("rules", ""),
        )
