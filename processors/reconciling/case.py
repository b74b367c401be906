"""One project under examination, with the data that its checks read."""

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
    """Dependencies of every examination.

    ``wanted`` is the recipe of the settings, or None if they do not choose one. ``lease``: a
    pending entry that is idle for this long has no owner any more.
    """

    tools: Tools
    wanted: Recipe | None
    lease: timedelta


@dataclass(frozen=True)
class Case:
    """A project, its live generation, its log, and a snapshot of its rows.

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
        """Readable name of a document, with its source or private agent if it has one."""
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
        """A list with one drift, or an empty list if there are no subjects.

        The default ``cure`` is the doctor's repair command.
        """
        if not subjects:
            return []
        cure = cure or f"headrace doctor --project {self.project} --repair"
        return [Drift(name, self.project, tuple(subjects), meaning, cure, severity)]
