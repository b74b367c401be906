"""One project under examination, and what the checks of it work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import asyncpg

from processors.reconciling.evidence import Evidence
from processors.reconciling.findings import Drift, Severity, Subject
from processors.replaying.folding import Key
from processors.replaying.opening import Tools
from store.digests import StoredDigest
from store.generations import Generation, Recipe

__all__ = ["Case", "Desk"]


@dataclass(frozen=True)
class Desk:
    """What every examination uses. ``wanted``: the recipe of the settings; None: they choose none.

    ``lease``: a pending entry that was left alone for this long belongs to nobody.
    """

    tools: Tools
    wanted: Recipe | None
    lease: timedelta


@dataclass(frozen=True)
class Case:
    """A project, its live generation, its log, and a still picture of its rows.

    ``sources``: names of the registered sources by id.
    """

    project: str
    generation: Generation
    desk: Desk
    evidence: Evidence
    connection: asyncpg.Connection
    documents: Mapping[Key, StoredDigest]
    sources: Mapping[str, str]

    def label(self, key: Key) -> str:
        """A document as people call it, with its source where it has one."""
        agent, uri = key
        if agent:
            return f"{uri} (private to {agent})"
        stored, last = self.documents.get(key), self.evidence.fold.last.get(key)
        origin = None if last is None else last.change.event.data.origin
        if origin is None and stored is not None:
            origin = stored.origin
        if origin is None:
            return uri
        return f"{uri} (source {self.sources.get(origin.source, origin.source)})"

    def drift(
        self,
        name: str,
        subjects: list[Subject],
        meaning: str,
        *,
        cure: str = "",
        severity: Severity = Severity.DRIFT,
    ) -> list[Drift]:
        """A finding, if there is anything to it; without a ``cure`` the repair is one."""
        if not subjects:
            return []
        cure = cure or f"headrace doctor --project {self.project} --repair"
        return [Drift(name, self.project, tuple(subjects), meaning, cure, severity)]
