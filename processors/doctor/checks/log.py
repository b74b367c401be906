"""Comparison of the ledger with the streams: every acknowledged change must have an outcome."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from redis.asyncio import Redis

from events.names import Names, Topic
from events.positions import LogPosition
from events.streams.dead_letters import DeadLetter, DeadLetters
from processors.doctor.context import Case
from processors.doctor.findings import Drift, Severity, Subject
from processors.doctor.stream_snapshot import INDEXER, StreamEntry
from processors.recipes import differing, replay_command
from runtime.errors import MalformedEvent, SignatureRefused
from store.documents.ledger import first_handled, outcomes_of
from store.generations.catalog import Generation
from store.inspection.snapshot import is_being_replayed, stuck_outbox

__all__ = [
    "find_generation_drifts",
    "find_ledger_drifts",
    "find_outbox_drifts",
    "letters_by_project",
    "subject_of",
]


async def find_ledger_drifts(case: Case) -> list[Drift]:
    """Find acknowledged changes without an outcome, and applied ones still pending or dead."""
    project_id = case.generation.project_id
    orders = {
        entry.change.log_position for entry in case.evidence.entries
    } | case.evidence.letters.keys()
    outcomes = await outcomes_of(case.connection, project_id, orders)
    first = await first_handled(case.connection, project_id)
    unknown = [] if first is None else _unknown(case, outcomes.keys(), first)
    done = {order for order, outcome in outcomes.items() if outcome != "rejected"}
    return [
        *case.drift(
            "ledger.missing",
            [subject_of(entry) for entry in unknown],
            "changes are acknowledged, but the ledger has no outcome of them",
        ),
        *case.drift(
            "pending.done",
            [subject_of(entry) for entry in _left_pending(case, done)],
            "changes are applied, but still pending, and no worker handles them",
        ),
        *case.drift(
            "dead_letter.done",
            [
                Subject(letter_id, letter_id)
                for order, letter_id in case.evidence.letters.items()
                if order in done
            ],
            "the changes of these dead letters have been applied",
        ),
    ]


def subject_of(entry: StreamEntry) -> Subject:
    """Subject for a change in the streams, labelled with its uri and token."""
    return Subject(f"{entry.change.event.data.uri} ({entry.token})", (entry.stream, entry.entry_id))


def _unknown(case: Case, known: Collection[LogPosition], first: int) -> list[StreamEntry]:
    """Acknowledged changes without an outcome.

    Changes rejected before the project existed are skipped: they are not in any ledger.
    """
    evidence = case.evidence
    return [
        entry
        for entry in evidence.entries
        if evidence.streams.handled(INDEXER, entry)
        and entry.change.position >= first
        and entry.change.log_position not in known
        and entry.change.log_position not in evidence.letters
    ]


def _left_pending(case: Case, done: Collection[LogPosition]) -> list[StreamEntry]:
    longest_ms = case.desk.lease.total_seconds() * 1000
    cursors = case.evidence.streams.cursors
    return [
        entry
        for entry in case.evidence.entries
        if entry.change.log_position in done
        and cursors[INDEXER, entry.stream].pending.get(entry.entry_id, -1) >= longest_ms
    ]


_MOST = 1_000_000
_CHANGES = (Topic.CHANGED_LIVE, Topic.CHANGED_BULK)
_UNPROVED = frozenset({SignatureRefused.__name__, MalformedEvent.__name__})


async def letters_by_project(redis: Redis, names: Names) -> Mapping[str, Mapping[LogPosition, str]]:
    """Read ids of dead letters by project and log position; letters that lack one are skipped.

    Raises:
        Unavailable: Redis can't be reached.
    """
    ids: defaultdict[str, dict[LogPosition, str]] = defaultdict(dict)
    for topic in _CHANGES:
        for letter in await DeadLetters(redis, names).list(_MOST, topic):
            project, order = _project(letter), _order(letter)
            if project is not None and order is not None:
                ids[project][order] = letter.id
    return ids


def _order(letter: DeadLetter) -> LogPosition | None:
    """Log position of a dead letter's change.

    If its signature was refused, this is the position of its entry; an asserted position is not
    trusted then.
    """
    if letter.position is None or letter.error not in _UNPROVED:
        return None if letter.position is None else LogPosition(letter.position, letter.partition)
    try:
        return LogPosition.of_entry(Topic(letter.topic).lane, letter.partition, letter.entry_id)
    except (ValueError, MalformedEvent):
        return None


def _project(letter: DeadLetter) -> str | None:
    try:
        event = json.loads(letter.event)
        return str(event["data"]["project"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


_LONGEST_S = 600.0


async def find_outbox_drifts(case: Case) -> list[Drift]:
    """Find events that have waited for the archive for more than ten minutes."""
    stuck = await stuck_outbox(case.connection, case.generation.project_id, _LONGEST_S)
    return case.drift(
        "outbox.stuck",
        [Subject(f"event {event_id}", event_id) for event_id in stuck],
        "events wait in the outbox for an archiver",
        remedy="headrace worker --only archiver",
    )


async def find_generation_drifts(case: Case) -> list[Drift]:
    """Find leftovers of replays, unless one is running, and models other than in the settings."""
    tools = case.desk.tools
    every = await tools.store.generations(case.project)
    left = [generation for generation in every if generation.state in {"building", "dropping"}]
    if left and await is_being_replayed(tools.database, case.generation.project_id):
        left = []
    building = [_subject(generation) for generation in left if generation.state == "building"]
    dropping = [_subject(generation) for generation in left if generation.state == "dropping"]
    return [
        *case.drift(
            "generation.unfinished",
            building,
            "a replay stopped early and left a half-built generation",
            remedy=f"headrace replay --project {case.project} with the options of that replay, or "
            "headrace replay drop ID",
        ),
        *case.drift("generation.dropping", dropping, "a generation is only partly dropped"),
        *_other_recipe(case),
    ]


def _subject(generation: Generation) -> Subject:
    return Subject(f"generation {generation.id}", generation.id)


def _other_recipe(case: Case) -> Iterator[Drift]:
    if case.desk.wanted is None:
        return
    other = differing(case.generation.recipe, case.desk.wanted)
    subjects = [Subject(f"{kind or 'all kinds'}: {model}", kind) for kind, model in other.items()]
    yield from case.drift(
        "generation.recipe",
        subjects,
        "the settings name other models than the index was made with",
        remedy=" && ".join(replay_command(case.project, *choice) for choice in other.items()),
        severity=Severity.NOTE,
    )
