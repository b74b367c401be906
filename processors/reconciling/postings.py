"""Check of postings: each chunk is in exactly one segment, and each segment is intact."""

from __future__ import annotations

from collections.abc import Iterable

from processors.reconciling.case import Case
from processors.reconciling.findings import Drift, Subject
from store.inspecting_postings import chunk_owners, survey_postings

__all__ = ["find_posting_drifts"]


async def find_posting_drifts(case: Case) -> list[Drift]:
    """Find chunks without postings, and damaged or duplicate segments."""
    survey = await survey_postings(case.connection, case.generation.id)
    owners = await chunk_owners(case.connection, case.generation.id, survey.missing)
    missing = [
        Subject(f"{case.label((owner.agent, owner.uri))} chunk {owner.ordinal}", owner.chunk_id)
        for owner in owners
    ]
    broken = [
        Subject(f"segment {segment}: {why}", segment) for segment, why in survey.broken.items()
    ]
    return [
        *case.drift("postings.missing", missing, "keyword search can't find these chunks"),
        *case.drift("postings.broken", broken, "segments differ from what was written"),
        *case.drift(
            "postings.doubled", _segments(survey.doubled), "segments have chunks of other segments"
        ),
        *case.drift(
            "postings.orphaned", _segments(survey.orphans), "postings belong to missing segments"
        ),
    ]


def _segments(ids: Iterable[int]) -> list[Subject]:
    return [Subject(f"segment {segment}", segment) for segment in sorted(ids)]
