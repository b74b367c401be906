"""Repair of stream entries, dead letters and ledger rows of applied changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from events.client.outcomes import Outcomes
from events.models import DocumentIndexed, DocumentIndexedData
from events.names import DocumentKey
from events.server.connection import redis_errors
from events.streams.dead_letters import DeadLetters
from processors.doctor.context import ProjectContext
from processors.doctor.findings import Finding, subjects_of
from processors.doctor.stream_snapshot import INDEXER, StreamEntry
from runtime.errors import UsageError
from store.documents.ledger import Entry, claimed_by
from store.inspection.corrections import enter_outcome

__all__ = ["acknowledge", "drop_letters", "enter_outcomes"]


_UNKNOWN_CLAIMANT = ""
"""Placeholder claimant for an event whose bytes are unavailable; it matches no other entry."""


async def enter_outcomes(context: ProjectContext, findings: Sequence[Finding]) -> list[str]:
    """Enter missing outcomes of changes into the ledger, if the documents prove them."""
    failures = []
    for entry in _entries(context, findings):
        change = entry.change
        data = change.event.data
        uris = [data.uri] if data.old_uri is None else [data.uri, data.old_uri]
        entered = await enter_outcome(
            context.tools.database,
            context.generation,
            [DocumentKey(data.agent or "", uri) for uri in uris],
            change.rank,
            Entry(
                change.log_position,
                change.event.id,
                "indexed",
                change.event.time,
                claimed_by(None if entry.is_original else _UNKNOWN_CLAIMANT),
            ),
        )
        if not entered:
            label = context.label(DocumentKey(data.agent or "", data.uri))
            failures.append(f"{label}: its change is not applied")
    return failures


async def acknowledge(context: ProjectContext, findings: Sequence[Finding]) -> list[str]:
    """Publish the outcomes of applied changes to waiting clients, then acknowledge the entries."""
    tools = context.tools
    outcomes = Outcomes(tools.redis, tools.names)
    for entry in _entries(context, findings):
        await outcomes.publish([DocumentIndexed(data=_duplicate(entry))])
        with redis_errors():
            await tools.redis.xack(tools.names.stream(*entry.stream), INDEXER, entry.entry_id)
    return []


async def drop_letters(context: ProjectContext, findings: Sequence[Finding]) -> list[str]:
    """Forget dead letters whose changes are applied."""
    letters = DeadLetters(context.tools.redis, context.tools.names)
    for subject in subjects_of(findings):
        with suppress(UsageError):  # it was dropped or redriven since the examination
            await letters.drop(str(subject.key))
    return []


def _duplicate(entry: StreamEntry) -> DocumentIndexedData:
    event = entry.change.event
    elapsed = datetime.now(UTC) - event.time
    return DocumentIndexedData(
        event_id=event.id,
        token=entry.token,
        project=event.data.project,
        uri=event.data.uri,
        change=event.data.change,
        outcome="duplicate",
        searchable_after_ms=max(0.0, elapsed.total_seconds() * 1000),
    )


def _entries(context: ProjectContext, findings: Sequence[Finding]) -> list[StreamEntry]:
    wanted = {subject.key for subject in subjects_of(findings)}
    return [entry for entry in context.log.entries if (entry.stream, entry.entry_id) in wanted]
