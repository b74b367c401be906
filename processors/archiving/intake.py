"""Admission to the archive: refused changes are left out, so that no replay restores them."""

from __future__ import annotations

from collections.abc import Sequence

from events.change_log import StreamedChange
from processors.admission import Admission, Judged
from runtime import metrics
from runtime.errors import SignatureRefused
from store.outbox import PostgresOutbox

__all__ = ["Intake"]


class Intake:
    """Admission of changes to the archive."""

    def __init__(self, admission: Admission, outbox: PostgresOutbox) -> None:
        self._admission = admission
        self._outbox = outbox

    async def judge(self, project: str, changes: Sequence[StreamedChange]) -> Judged:
        """Judge changes of one project and drop refused ones from the outbox.

        The outbox would publish them again otherwise.

        Raises:
            Unavailable: Postgres can't be reached.
        """
        judged = await self._admission.judge(project, changes)
        if judged.refused:
            metrics.CHANGES_NOT_ARCHIVED.inc(len(judged.refused), reason=SignatureRefused.__name__)
            await self._outbox.drop(
                project,
                [(change.raw, change.signature or b"") for change in judged.refused],
            )
        return judged
