"""What the archive takes in: what counts, so that no replay brings back what was refused."""

from __future__ import annotations

from collections.abc import Sequence

from events.change_log import StreamedChange
from processors.admission import Admission, Judged
from runtime import metrics
from runtime.errors import SignatureRefused
from store.outbox import PostgresOutbox

__all__ = ["Intake"]


class Intake:
    """Judges changes on their way into the archive."""

    def __init__(self, admission: Admission, outbox: PostgresOutbox) -> None:
        self._admission = admission
        self._outbox = outbox

    async def judge(self, project: str, changes: Sequence[StreamedChange]) -> Judged:
        """Sort changes of one project; what is refused leaves the outbox, or it would come again.

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
