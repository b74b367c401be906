"""Seeded history of documents, and the index that it leads to."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from events.models import DocumentChange, DocumentChanged

PROJECT = "chaos"


@dataclass
class Journal:
    """Draws consistent changes one after the other, and records their result.

    ``documents`` is the oracle: uri → content after the last change. ``kept`` are documents of the
    project that others publish and that no change of the journal touches. Words of a section begin
    with ``marker``, so that texts of different projects differ.
    """

    seed: int
    project: str = PROJECT
    marker: str = "word"
    documents: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._count = 0

    @property
    def oracle(self) -> dict[str, str]:
        """Expected content of the whole index."""
        return self.documents | self.kept

    def changes(self, count: int) -> Iterator[DocumentChanged]:
        """Next changes: mostly new documents and edits, some deletes and renames."""
        for _ in range(count):
            self._count += 1
            yield DocumentChanged(id=f"seed-{self.seed}-{self._count}", data=self._next())

    def _next(self) -> DocumentChange:
        known = sorted(self.documents)
        draw = self._rng.random()
        if len(known) < 20 or draw < 0.55:
            return self._upsert(f"docs/{self._count:05}.md")
        uri = self._rng.choice(known)
        if draw < 0.85:
            return self._upsert(uri)
        if draw < 0.93:
            return self._delete(uri)
        return self._rename(uri)

    def _upsert(self, uri: str) -> DocumentChange:
        self.documents[uri] = self._text()
        return DocumentChange(project=self.project, uri=uri, content=self.documents[uri])

    def _delete(self, uri: str) -> DocumentChange:
        del self.documents[uri]
        return DocumentChange(project=self.project, uri=uri, change="delete")

    def _rename(self, uri: str) -> DocumentChange:
        target = f"moved/{self._count:05}.md"
        self.documents[target] = self.documents.pop(uri)
        return DocumentChange(
            project=self.project,
            uri=target,
            old_uri=uri,
            change="rename",
            content=self.documents[target],
        )

    def _text(self) -> str:
        return "\n\n".join(self._section(number) for number in range(self._rng.randint(1, 4)))

    def _section(self, number: int) -> str:
        words = " ".join(f"{self.marker}{self._rng.randint(0, 4000)}" for _ in range(60))
        return f"# Heading {number} of {self._count}\n\n{words}\n"
