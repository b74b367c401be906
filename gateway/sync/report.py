"""Report of a sync, as lines for people and as JSON for programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from events.client.outcomes import Outcome
from events.models import DocumentEmbedded, DocumentRejected
from events.names import Lane
from sources import Report
from sources.import_file import ImportSource

__all__ = ["SyncReport", "describe"]

_MOST_LINES = 10
_COMMIT_CHARACTERS = 12
_UNPRINTED = ("pending", "problems")
_NUMBERED = re.compile(r"(?P<path>.*):(?P<line>[0-9]+)", re.DOTALL)


@dataclass
class SyncReport:
    """Result of one sync.

    Attributes:
        source: name of the source.
        base: name of the source that this one is an overlay of, if it is one.
        found: number of files: the sum of `unchanged`, `waiting`, `published`, `rejected` and
            `skipped`, except for documents that were deleted.
        waiting: documents published by an earlier sync and not applied when this one began.
        rejected: reason by uri, for documents rejected now or before and not changed since.
        indexed: changes that were applied while this sync waited. None if it did not wait.
        chunks_pending: chunks that waited for vectors when the sync stopped following them.
        batch: the batch that records this sync; that of an earlier one, if nothing was published.
        older_than: the indexed commit if it is newer than the source's; then nothing is published.
        uncommitted: number of files that differ from the commit.
        pending: tokens of changes of this and earlier syncs whose outcomes are not known yet.
        problems: what is wrong with some of the skipped paths, besides the reason.
        cut_by_topic: an estimate is for documents whose sentences are embedded besides the chunks.
    """

    source: str
    location: str
    kind: str
    lane: Lane = Lane.LIVE
    commit: str | None = None
    found: int = 0
    unchanged: int = 0
    waiting: int = 0
    published: int = 0
    deleted: int = 0
    indexed: int | None = None
    chunks_embedded: int = 0
    chunks_pending: int = 0
    uncommitted: int = 0
    older_than: str | None = None
    batch: str | None = None
    cut_by_topic: bool = False
    base: str | None = None
    pending: frozenset[str] = frozenset()
    rejected: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    skipped_paths: dict[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    def copy_counts(self, report: Report, prefix: str = "") -> None:
        """Copy the counts of the sync itself."""
        self.found, self.unchanged, self.waiting = report.found, report.unchanged, report.waiting
        self.published, self.deleted = report.published, report.deleted
        self.rejected |= {prefix + uri: reason for uri, reason in report.rejected.items()}
        self.skipped_paths = {path: reason.value for path, reason in report.skipped_paths.items()}
        self.skipped = Counter(self.skipped_paths.values())
        self.problems = report.problems

    def count(self, outcome: Outcome) -> None:
        """Count one more outcome."""
        if isinstance(outcome, DocumentEmbedded):
            self.chunks_embedded += outcome.data.chunks_embedded
            self.chunks_pending -= outcome.data.chunks_embedded + outcome.data.chunks_refused
        elif isinstance(outcome, DocumentRejected):
            # without the type of the error, as the ledger gives the reason to later syncs
            self.rejected[outcome.data.uri or "?"] = outcome.data.problem.detail
        else:
            self.indexed = (self.indexed or 0) + (outcome.data.change != "delete")
            self.chunks_embedded += outcome.data.chunks_embedded
            self.chunks_pending += outcome.data.chunks_pending

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON that the command prints."""
        fields = {name: field for name, field in vars(self).items() if name not in _UNPRINTED}
        return {**fields, "lane": self.lane.value, "skipped": dict(self.skipped)}


def describe(
    report: SyncReport, *, skipped: bool = False, is_preview: bool = False
) -> Iterator[str]:
    """Lines for people; ``skipped`` adds the path of each file that was left out.

    Those of a preview say what is to be published and deleted.
    """
    subject = f"{report.kind} {report.source}"
    if report.base is not None:
        subject = f"overlay {report.source} of {report.base}"
    if report.older_than is not None:
        state = "is to be" if is_preview else "was"
        yield (
            f"{subject}: commit {_short(report.commit)} is older than the "
            f"indexed commit {_short(report.older_than)}, so nothing {state} published; "
            "use --full to publish it anyway"
        )
    else:
        yield f"{subject}: {', '.join(_counts(report, is_preview=is_preview))}"
    if skipped:
        for path in sorted(report.skipped_paths, key=_by_line):
            problem = f": {report.problems[path]}" if path in report.problems else ""
            yield f"skipped ({report.skipped_paths[path]}): {path}{problem}"
    rejected = sorted(report.rejected.items())
    yield from (f"rejected: {uri}: {reason}" for uri, reason in rejected[:_MOST_LINES])
    if rejected:
        more = len(rejected) - _MOST_LINES
        omitted = f"and {more:,} more: " if more > 0 else ""
        yield (
            f"{omitted}rejected changes are published again when the file changes, or with --full; "
            "`headrace dead list` shows them"
        )
    if report.cut_by_topic:
        yield (
            "these documents are cut by topic: the sentences of long paragraphs are embedded "
            "besides the chunks, so their indexing may cost twice as much"
        )
    if report.uncommitted:
        files = "1 file has" if report.uncommitted == 1 else f"{report.uncommitted:,} files have"
        yield f"{files} uncommitted changes; --worktree includes them"


def _by_line(path: str) -> tuple[str, int]:
    """Sort key that puts line 2 of an import before line 10."""
    match = _NUMBERED.fullmatch(path)
    return (match["path"], int(match["line"])) if match else (path, 0)


def _counts(report: SyncReport, *, is_preview: bool) -> Iterator[str]:
    unit = "line" if report.kind == ImportSource.kind else "file"
    yield f"{report.found:,} {unit}{'s' * (report.found != 1)} found"
    yield f"{report.unchanged:,} unchanged"
    if report.waiting:
        yield f"{report.waiting:,} published before and waiting for a worker"
    yield f"{report.published:,} {'to publish' if is_preview else 'published'}"
    yield f"{report.deleted:,} {'to delete' if is_preview else 'deleted'}"
    if report.indexed is not None:
        yield f"{report.indexed:,} indexed"
    if report.chunks_pending:
        wait = "chunk waits" if report.chunks_pending == 1 else "chunks wait"
        yield f"{report.chunks_pending:,} {wait} for vectors"
    if report.rejected:
        yield f"{len(report.rejected):,} rejected"
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(report.skipped.items()))
    yield f"{report.skipped.total():,} skipped{f' ({reasons})' if reasons else ''}"


def _short(commit: str | None) -> str:
    return (commit or "unknown")[:_COMMIT_CHARACTERS]
