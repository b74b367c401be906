"""One sync of a source: the changes to publish and the state to save."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from operator import attrgetter

from events.models import content_hash
from sources.comparison import Basis, Step, match_renames
from sources.inspection import rules_digest, to_document
from sources.state import DELETED, ReadFile, State, mark_of, skip_of
from sources.types import (
    Change,
    Content,
    Details,
    Listing,
    Read,
    Reason,
    Report,
    SizeLimits,
    Skip,
    Source,
)

__all__ = ["Sync"]


class Sync:
    """Changes that one sync of a source has to publish, read lazily; iterate only once.

    An interrupted sync loses no change, and leaves no document in the index that the source lacks,
    if the caller saves ``state(doubtful)`` with the uris that it is about to publish (``touched``),
    calls ``published`` for each change, and saves ``state()`` at the end.

    Args:
        source: source of the documents.
        listing: current content of the source.
        basis: content of the index from this source.
        sizes: larger files are skipped.
        read_all: read all files with unknown text immediately, so that ``steps`` is complete.

    Raises:
        UsageError: the source no longer exists, or can't be read.
    """

    def __init__(
        self,
        source: Source,
        listing: Listing,
        basis: Basis,
        sizes: SizeLimits,
        *,
        read_all: bool = False,
    ) -> None:
        self._source = source
        self._listing = listing
        self._basis = basis
        self._sizes = sizes
        limits = f"{sizes.text_bytes} {sizes.binary_bytes}"
        self._rules = f"{limits} {rules_digest(listing.included)}"
        self._files = self._cached_results()
        self._edited = set[str]()
        self._equal = set[str]()
        self._pending = dict(basis.state.pending)
        self._rejected = dict(basis.state.rejected)
        self.report = Report(
            found=len(listing.files) + len(listing.skipped_paths),
            skipped_paths=dict(listing.skipped_paths),
            problems=listing.problems,
        )
        self.position = 0
        """Number of steps that have been iterated over."""
        self.steps = self._plan(read_all=read_all)

    @property
    def total(self) -> int:
        """Upper limit of the number of changes; files that turn out to be unchanged yield none."""
        return len(self.steps)

    def touched(self, start: int, stop: int) -> frozenset[str]:
        """Uris of the steps from ``start`` to ``stop``."""
        steps = islice(self.steps, start, stop)
        return frozenset(uri for step in steps for uri in (step.uri, step.old_uri) if uri)

    def published(self, change: Change, token: str) -> None:
        """Record the token of a change until its outcome is known."""
        self._pending[change.uri] = token, change.target
        self._rejected.pop(change.uri, None)
        if change.old_uri is not None:
            self._pending[change.old_uri] = token, DELETED
            self._rejected.pop(change.old_uri, None)

    def settled(self, uri: str, token: str) -> None:
        """Remove a pending change whose outcome is known, and which the index now reflects."""
        if self._pending.get(uri, ("",))[0] == token:
            del self._pending[uri]

    def state(self, doubtful: Collection[str] = ()) -> State:
        """State to save. ``doubtful`` are the uris that are about to be published."""
        before = self._basis.state.doubtful
        return replace(
            self._basis.state,
            files=self._files,
            pending=self._pending,
            rejected=self._rejected,
            doubtful=frozenset(doubtful).union(uri for uri in before if self._is_kept(uri)),
            commit=self._listing.commit,
            committed_at=self._listing.committed_at,
            rules=self._rules,
            memory=self._listing.memory,
        )

    def __iter__(self) -> Iterator[Change]:
        """Yield the changes; each content is read just before its change.

        Raises:
            UsageError: the source no longer exists.
        """
        if not self.steps:
            return
        with self._source.reader(self._sizes) as read:
            for step in self.steps:
                self.position += 1
                if step.change == "delete":
                    yield self._delete(step.uri, step.reason or Reason.DELETED)
                else:
                    yield from self._read(step, read)

    def _cached_results(self) -> dict[str, ReadFile]:
        """Results of earlier syncs for files that have not changed, if the rules are the same."""
        state = self._basis.state
        if self._basis.full or state.rules != self._rules:
            return {}
        files, lost = state.files, self._basis.lost_uris
        results = {
            uri: entry
            for uri, fingerprint in self._listing.files.items()
            if (entry := files.get(uri)) and entry[0] == fingerprint and uri not in lost
        }
        if self._listing.kept:
            results |= {uri: entry for uri, entry in files.items() if self._is_kept(uri)}
        return results

    def _is_kept(self, uri: str) -> bool:
        """True if a document that is not listed stays in the index."""
        return uri not in self._listing.files and uri in self._listing.kept

    def _plan(self, *, read_all: bool) -> list[Step]:
        files, expected = self._listing.files, self._basis.expected
        kept = self._listing.kept
        missing = {
            uri: target for uri, target in expected.items() if uri not in files and uri not in kept
        }
        self._find_marks(missing, read_all=read_all)
        added = {uri: self._mark(uri) for uri in files if uri not in expected}
        renames = self._renames(missing, added)
        moved = set(renames.values())
        return [
            *(
                Step("rename", uri, Reason.RENAMED, files[uri], old_uri)
                for uri, old_uri in sorted(renames.items())
            ),
            *self._upserts(renames),
            *self._deletes(moved),
        ]

    def _renames(
        self, missing: Mapping[str, str], added: Mapping[str, str | None]
    ) -> dict[str, str]:
        if not missing or not added or self._basis.full or self._basis.base is not None:
            return {}
        state = self._basis.state
        texts = {
            uri: mark
            for uri, mark in added.items()
            if uri not in state.doubtful
            and uri not in state.rejected
            and (mark is None or skip_of(mark) is None)
        }
        similar = self._source.renames(state.commit, self._listing)
        return match_renames(missing, texts, similar)

    def _upserts(self, renames: Collection[str]) -> list[Step]:
        basis, files, expected = self._basis, self._files, self._basis.expected
        state = basis.state
        # fast path without calls for the common case: a hundred thousand unchanged files
        is_plain = not (basis.full or basis.collections or state.doubtful or self._rejected)
        is_plain = is_plain and basis.base is None
        steps = []
        for uri, fingerprint in self._listing.files.items():
            mark = files[uri][1] if uri in files else None
            if is_plain and mark is not None and expected.get(uri) == mark:
                self._count(uri)
            elif uri not in renames and (mark is None or (reason := self._reason(uri, mark))):
                steps.append(Step("upsert", uri, None if mark is None else reason, fingerprint))
        return sorted(steps, key=attrgetter("uri"))

    def _deletes(self, moved: Collection[str]) -> Iterator[Step]:
        """Delete documents whose file is gone, or is known not to be a document."""
        basis = self._basis
        refused = {uri for uri, (_, target) in basis.state.rejected.items() if target == DELETED}
        uris = basis.expected.keys() | basis.state.doubtful | refused | set(basis.base_uris)
        missing = uris - self._listing.files.keys()
        missing |= uris & (self.report.skipped_paths.keys() | self._equal)
        missing = {uri for uri in missing if uri not in self._listing.kept}
        for uri in sorted(missing - set(moved)):
            reason = self._reason_to_delete(uri)
            if reason is None:
                continue
            if (refusal := basis.refusal(uri, self._target_of_delete(uri))) is not None:
                self.report.rejected[uri] = refusal
            else:
                yield Step("delete", uri, reason)

    def _reason_to_delete(self, uri: str) -> Reason | None:
        is_equal = uri in self._equal
        return (self._basis.reason_to_drop if is_equal else self._basis.reason_to_delete)(uri)

    def _target_of_delete(self, uri: str) -> str:
        return DELETED if uri in self._equal else self._basis.target_of_delete(uri)

    def _reason(self, uri: str, mark: str) -> Reason | None:
        """Reason to publish a file with this mark; if None, the file is counted in the report."""
        skip = skip_of(mark)
        if skip is not None:
            self.report.skipped_paths[uri] = skip
            return None
        if self._basis.is_in_base(uri, mark):
            self._equal.add(uri)
            self._rejected.pop(uri, None)
            self._count(uri)
            return None
        reason = self._basis.reason_to_publish(uri, mark)
        if uri in self._edited:
            return reason or (Reason.LOST if uri in self._basis.lost_uris else Reason.CHANGED)
        if reason is None:
            self._rejected.pop(uri, None)
            self._count(uri)
            return None
        if (refusal := self._basis.refusal(uri, self._basis.target(mark))) is not None:
            self.report.rejected[uri] = refusal
            return None
        return reason

    def _count(self, uri: str) -> None:
        """Count a file whose document is up to date."""
        if uri in self._pending:
            self.report.waiting += 1
        else:
            self.report.unchanged += 1

    def _mark(self, uri: str) -> str | None:
        entry = self._files.get(uri)
        return None if entry is None else entry[1]

    def _find_marks(self, missing: Mapping[str, str], *, read_all: bool) -> None:
        """Read the texts of new files if others are gone, because they may be renamed files."""
        files, basis = self._listing.files, self._basis
        if not read_all and (not missing or basis.full):
            return
        unread = [uri for uri in files if uri not in self._files]
        if not read_all and basis.state.rules == self._rules:
            old = {entry[0]: entry[1] for uri in missing if (entry := basis.state.files.get(uri))}
            self._files |= {
                uri: (files[uri], old[files[uri]])
                for uri in unread
                if uri not in basis.expected and files[uri] in old
            }
        if not read_all:
            unread = [uri for uri in unread if uri not in self._files and uri not in basis.expected]
        self._read_marks(unread)

    def _read_marks(self, uris: Sequence[str]) -> None:
        if not uris:
            return
        with self._source.reader(self._sizes) as read:
            for uri in uris:
                try:
                    content = read(uri, self._listing.files[uri])
                except OSError:
                    continue
                body = self._body(uri, content)
                mark = mark_of(body) if isinstance(body, Skip) else content_hash(body)
                self._files[uri] = content.fingerprint, mark
                self._note_edit(uri, content)

    def _read(self, step: Step, read: Read) -> Iterator[Change]:
        try:
            content = read(step.uri, step.fingerprint)
        except OSError:
            self._files.pop(step.uri, None)
            yield from self._skip(step, Skip.UNREADABLE)
            return
        body = self._body(step.uri, content)
        mark = mark_of(body) if isinstance(body, Skip) else content_hash(body)
        self._files[step.uri] = content.fingerprint, mark
        self._note_edit(step.uri, content)
        if isinstance(body, Skip):
            yield from self._skip(step, body)
            return
        reason = step.reason if step.change == "rename" else self._reason(step.uri, mark)
        if reason is not None:
            self.report.published += 1
            yield self._upsert(step, mark, body, reason, content.details)
        elif step.uri in self._equal and (reason := self._basis.reason_to_drop(step.uri)):
            yield self._delete(step.uri, reason)

    def _note_edit(self, uri: str, content: Content) -> None:
        """Record a document whose details may have changed, though its bytes are equal."""
        if not self._listing.with_details:
            return
        saved, _ = self._basis.state.files.get(uri, ("", ""))
        if saved != content.fingerprint or uri in self._basis.lost_uris:
            self._edited.add(uri)

    def _body(self, uri: str, content: Content) -> str | bytes | Skip:
        if len(content.raw) > self._sizes.of(uri):
            return Skip.OVERSIZED
        return to_document(uri, content.raw, included=uri in self._listing.included)

    def _skip(self, step: Step, skip: Skip) -> Iterator[Change]:
        """Count a skipped file, and delete its document (or that of its old uri) from the index."""
        self.report.skipped_paths[step.uri] = skip
        for uri in filter(None, (step.old_uri, step.uri)):
            reason = self._basis.reason_to_delete(uri)
            if reason is not None:
                yield self._delete(uri, reason)

    def _delete(self, uri: str, reason: Reason) -> Change:
        self.report.deleted += 1
        target, commit = self._target_of_delete(uri), self._listing.commit
        if target == DELETED:
            return Change("delete", uri, target, reason, commit=commit)
        empty = Details(kind="text")
        return Change("upsert", uri, target, reason, content="", commit=commit, details=empty)

    def _upsert(
        self, step: Step, mark: str, body: str | bytes, reason: Reason, details: Details | None
    ) -> Change:
        return Change(
            change=step.change,
            uri=step.uri,
            target=self._basis.target(mark),
            reason=reason,
            old_uri=step.old_uri,
            content=body,
            commit=self._listing.commit,
            permalink_template=self._listing.permalink_template,
            details=details,
        )
