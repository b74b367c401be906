"""One sync: compare, read what changed, say what to publish and what to remember."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from uuid import uuid4

from runtime import protocol
from sources.comparing import Step, steps
from sources.inspection import rules_digest, to_document
from sources.state import UNSURE, State
from sources.types import Change, ChangeKind, Content, Listing, Read, Report, Skip, Source

__all__ = ["Sync"]


class Sync:
    """What one sync of a source has to publish, read lazily: iterate once.

    A sync that loses nothing when it is killed: keep ``intent``, publish every change, keep
    ``state``. After a crash the next sync starts from the intent and publishes all of it again,
    under the same event ids as long as the source hasn't changed in the meantime.

    States belong to ``source.name``. Where a directory has become a git repository, or the other
    way round, all of it is published again, and what is no longer there is deleted.

    Args:
        source: where from. It is listed at once, which blocks.
        before: as kept last; None: publish everything.
        max_bytes: larger files are skipped.

    Raises:
        UsageError: the source has gone, or can't be read.
    """

    def __init__(self, source: Source, before: State | None, max_bytes: int) -> None:
        self._source = source
        self._max_bytes = min(max_bytes, protocol.INLINE_CONTENT_CHARACTERS)
        self._listing = source.list(self._max_bytes)
        before = before or State(epoch=uuid4().hex, sequence=0)
        before = _judged_alike(before, self._listing.included)
        self._before = before
        similar = source.renames(before.commit, self._listing)
        self._steps = steps(before, self._listing.files, similar)
        self._sequence = _sequence(before, self._listing)
        self._documents = dict(before.documents)
        self._skipped = {
            uri: kept
            for uri, kept in before.skipped.items()
            if self._listing.files.get(uri) == kept[0]
        }
        self.report = self._first_report()

    @property
    def total(self) -> int:
        """Most changes that iterating gives; files that turn out to be no text give none."""
        return len(self._steps)

    @property
    def state(self) -> State:
        """To be kept when every change is published; only what was iterated over is in it."""
        return State(
            epoch=self._before.epoch,
            sequence=self._sequence,
            documents=self._documents,
            skipped=self._skipped,
            commit=self._listing.commit,
            rules=rules_digest(self._listing.included),
        )

    @property
    def intent(self) -> State:
        """To be kept before the first change is published."""
        documents = dict(self._before.documents)
        touched = {uri for step in self._steps for uri in (step.uri, step.old_uri) if uri}
        for uri in touched:
            documents[uri] = UNSURE + documents.get(uri, "").removeprefix(UNSURE)
        skipped = self._before.skipped.items()
        return replace(
            self._before,
            sequence=self._sequence,
            documents=documents,
            skipped={uri: kept for uri, kept in skipped if uri not in touched},
            target=_digest(self._listing),
        )

    def __iter__(self) -> Iterator[Change]:
        """The changes; each content is read when its turn comes.

        Raises:
            UsageError: the source has gone in the meantime.
        """
        with self._source.reader(self._max_bytes) as read:
            for step in self._steps:
                yield from self._delete(step) if step.change == "delete" else self._read(step, read)

    def _first_report(self) -> Report:
        report = Report(skipped=self._listing.skipped.copy())
        report.found = len(self._listing.files) + report.skipped.total()
        report.skipped.update(reason for _, reason in self._skipped.values())
        to_read = sum(step.change != "delete" for step in self._steps)
        report.unchanged = len(self._listing.files) - len(self._skipped) - to_read
        return report

    def _delete(self, step: Step) -> Iterator[Change]:
        self.report.deleted += 1
        del self._documents[step.uri]
        yield self._change("delete", step.uri, "")

    def _read(self, step: Step, read: Read) -> Iterator[Change]:
        try:
            content = read(step.uri, step.fingerprint)
        except OSError:
            yield from self._skip(step, Skip.UNREADABLE, step.fingerprint)
            return
        text = self._text(step.uri, content)
        if isinstance(text, Skip):
            yield from self._skip(step, text, content.fingerprint)
            return
        self.report.published += 1
        if step.old_uri is not None:
            del self._documents[step.old_uri]
        self._documents[step.uri] = content.fingerprint
        yield self._change(step.change, step.uri, content.fingerprint, step.old_uri, text)

    def _text(self, uri: str, content: Content) -> str | Skip:
        if len(content.raw) > self._max_bytes:
            return Skip.OVERSIZED
        return to_document(uri, content.raw, included=uri in self._listing.included)

    def _skip(self, step: Step, reason: Skip, fingerprint: str) -> Iterator[Change]:
        """Count it, and take what was a document there (or at the old uri) out of the index."""
        self.report.skipped[reason] += 1
        if reason is not Skip.UNREADABLE:
            self._skipped[step.uri] = (fingerprint, reason)
        for uri in filter(None, (step.old_uri, step.uri)):
            if uri in self._documents:
                yield from self._delete(Step("delete", uri))

    def _change(
        self,
        change: ChangeKind,
        uri: str,
        fingerprint: str,
        old_uri: str | None = None,
        content: str | None = None,
    ) -> Change:
        place = [self._source.name, self._before.epoch, self._sequence]
        key = json.dumps([*place, change, uri, old_uri, fingerprint])
        return Change(
            change=change,
            uri=uri,
            key=hashlib.sha256(key.encode()).hexdigest(),
            old_uri=old_uri,
            content=content,
            commit=self._listing.commit,
            permalink_template=self._listing.permalink_template,
        )


def _judged_alike(before: State, included: Collection[str]) -> State:
    """The state, with nothing taken for known that was judged by other rules."""
    if before.rules == rules_digest(included):
        return before
    unsure = {uri: UNSURE + mark.removeprefix(UNSURE) for uri, mark in before.documents.items()}
    return replace(before, documents=unsure, skipped={})


def _sequence(before: State, listing: Listing) -> int:
    """That of the interrupted sync if this one publishes the very same, else the next."""
    return before.sequence + (before.target != _digest(listing))


def _digest(listing: Listing) -> str:
    listed = json.dumps([listing.commit, sorted(listing.files.items())])
    return hashlib.sha256(listed.encode()).hexdigest()
