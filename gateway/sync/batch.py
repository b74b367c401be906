"""Batch of a sync: its progress is counted from the ledger, also after the sync was killed."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence

from events.client.publisher import Receipt
from sources import Report
from store.sources import RegisteredSource
from store.views.batches import Batches, SkippedFiles, skipped_files

__all__ = ["SyncBatch"]


class SyncBatch:
    """The batch of one run of a sync. A run that publishes nothing gets no batch of its own.

    Attributes:
        id: id of the batch, which the events of the run carry.
    """

    def __init__(self, batches: Batches, source: RegisteredSource, report: Report) -> None:
        self._batches = batches
        self._source = source
        self._report = report
        self._started_by = f"process {os.getpid()} on {socket.gethostname()}"
        self._has_begun = False
        self.id = f"sync-{secrets.token_hex(8)}"

    async def begin(self) -> None:
        """Record that the run begins to publish; raises Unavailable without Postgres."""
        if self._has_begun:
            return
        project = self._source.project
        await self._batches.begin(
            project, self.id, source_id=self._source.id, started_by=self._started_by
        )
        await self._batches.update(
            project, self.id, found=self._report.found, skipped=self._skipped()
        )
        self._has_begun = True

    async def count(self, receipts: Sequence[Receipt]) -> None:
        """Count changes after they were published; raises as ``begin``."""
        duplicates = sum(receipt.duplicate for receipt in receipts)
        await self._batches.update(
            self._source.project,
            self.id,
            published=len(receipts) - duplicates,
            duplicates=duplicates,
        )

    async def end(self) -> None:
        """Record what the run found and skipped, and that it has ended; raises as ``begin``."""
        project, found, skipped = self._source.project, self._report.found, self._skipped()
        if self._has_begun:
            await self._batches.update(project, self.id, found=found, skipped=skipped, ended=True)
            return
        self.id = await self._batches.refresh(
            project,
            self.id,
            source_id=self._source.id,
            started_by=self._started_by,
            found=found,
            skipped=skipped,
        )

    def _skipped(self) -> Sequence[SkippedFiles]:
        paths = self._report.skipped_paths
        return skipped_files({path: reason.value for path, reason in paths.items()})
