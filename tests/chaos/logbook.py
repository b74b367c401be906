"""Record of the changes and questions of a run, and the index that they lead to."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from events.client.publisher import Receipt
from events.models import DocumentChange, DocumentChanged
from events.names import Lane, LogPosition, Rank, rank_of

__all__ = ["Logbook", "Published", "Question"]

_TAIL_LINES = 20


@dataclass
class Published:
    """Change of a run; without a receipt it is uncertain whether the log has it.

    ``refusals`` are the errors of earlier attempts with the same event id.
    """

    event: DocumentChanged
    lane: Lane
    receipt: Receipt | None = None
    refusals: list[str] = field(default_factory=list)

    @property
    def rank(self) -> Rank:
        """Rank of the change; the change of a document with the highest rank wins."""
        place = self.position
        return rank_of(place, self.event.data.origin)

    @property
    def position(self) -> LogPosition:
        """Log position of the acknowledged change."""
        assert self.receipt is not None, f"{self.event.id} was never acknowledged"
        return LogPosition.from_token(self.receipt.token)

    def __str__(self) -> str:
        token = "perhaps" if self.receipt is None else self.receipt.token
        refused = f" after {'; '.join(self.refusals)}" if self.refusals else ""
        return f"{token} {self.event.id} {_change(self.event.data)}{refused}"


@dataclass
class Question:
    """Query of a run; several ``entry_ids`` if a reply of Redis was lost.

    ``must_find`` is the uri of a document that does not change after ``min_event``: an answer that
    is not stale must contain it.
    """

    id: str
    project: str
    text: str
    reply_to: str
    partition: int = 0
    min_event: str | None = None
    must_find: str | None = None
    entry_ids: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        sent = ", ".join(self.entry_ids) or "perhaps"
        wish = f" must find {self.must_find} of {self.min_event}" if self.must_find else ""
        return f"{sent} query {self.id} of {self.project}: {self.text[:40]!r}{wish}"


@dataclass
class Logbook:
    """Changes and questions of a run, in the order of their first attempts."""

    published: list[Published] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    _written: list[Published | Question] = field(default_factory=list)

    def publishing(self, event: DocumentChanged, lane: Lane) -> Published:
        """Record a change before it is published."""
        entry = Published(event, lane)
        self.published.append(entry)
        self._written.append(entry)
        return entry

    def asking(self, question: Question) -> Question:
        """Record a question before it is asked."""
        self.questions.append(question)
        self._written.append(question)
        return question

    @property
    def acknowledged(self) -> list[Published]:
        """Changes that are certainly in the log, by rank."""
        entries = [one for one in self.published if one.receipt is not None]
        return sorted(entries, key=lambda one: one.rank)

    @property
    def perhaps(self) -> list[Published]:
        """Changes without an acknowledgement."""
        return [one for one in self.published if one.receipt is None]

    @property
    def receipts(self) -> list[Receipt]:
        """Receipts of all acknowledged changes."""
        return [one.receipt for one in self.acknowledged if one.receipt is not None]

    @property
    def projects(self) -> list[str]:
        """Projects that changes were published to."""
        return sorted({one.event.data.project for one in self.published})

    def oracle(self, project: str, without: Collection[str] = ()) -> dict[str, str]:
        """Fold of a project's changes by rank: content by uri.

        ``without``: tokens of changes without an effect.
        """
        documents: dict[str, str] = {}
        for one in self.acknowledged:
            if one.event.data.project == project and one.position.token not in without:
                _apply(documents, one.event.data)
        return documents

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Last entries, for the report of a failed run."""
        rows = [str(one) for one in self._written[-lines:]]
        counts = f"{len(self.published)} changes ({len(self.perhaps)} perhaps)"
        return "\n".join([f"{counts}, {len(self.questions)} questions; the last:", *_indent(rows)])


def _indent(rows: list[str]) -> Iterator[str]:
    return (f"  {row}" for row in rows)


def _apply(documents: dict[str, str], change: DocumentChange) -> None:
    if change.change == "delete":
        documents.pop(change.uri, None)
        return
    if change.old_uri is not None:
        documents.pop(change.old_uri, None)
    assert change.content is not None, "the oracle knows content that travels in its event only"
    documents[change.uri] = change.content


def _change(data: DocumentChange) -> str:
    old = f" from {data.old_uri}" if data.old_uri else ""
    return f"{data.change} {data.project}/{data.uri}{old}"
