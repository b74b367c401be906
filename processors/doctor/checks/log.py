"""Comparison of the ledger with the streams: every acknowledged change must have an outcome."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from redis.asyncio import Redis

from events.names import LogPosition, Names, Topic
from events.streams.dead_letters import DeadLetter, DeadLetters
from processors.chunking.strategies import AUTO
from processors.doctor.context import ProjectContext
from processors.doctor.findings import Finding, Severity, Subject
from processors.doctor.stream_snapshot import INDEXER, StreamEntry
from processors.recipes import differing, replay_command
from runtime.errors import MalformedEvent, SignatureRefused
from store.documents import collections
from store.documents.ledger import first_handled, outcomes_of
from store.generations.catalog import Generation
from store.inspection.snapshot import is_being_replayed, stuck_outbox

__all__ = [
    "check_generations",
    "check_ledger",
    "check_outbox",
    "letters_by_project",
    "subject_of",
]


async def check_ledger(context: ProjectContext) -> list[Finding]:
    """Find acknowledged changes without an outcome, and applied ones still pending or dead."""
    project_id = context.generation.project_id
    log_positions = {
        entry.change.log_position for entry in context.log.entries
    } | context.log.letters.keys()
    outcomes = await outcomes_of(context.connection, project_id, log_positions)
    first = await first_handled(context.connection, project_id)
    unrecorded = [] if first is None else _unrecorded(context, outcomes.keys(), first)
    done = {log_position for log_position, outcome in outcomes.items() if outcome != "rejected"}
    return [
        *context.findings(
            "ledger.missing",
            [subject_of(entry) for entry in unrecorded],
            "changes are acknowledged, but the ledger has no outcome of them",
        ),
        *context.findings(
            "pending.done",
            [subject_of(entry) for entry in _left_pending(context, done)],
            "changes are applied, but still pending, and no worker handles them",
        ),
        *context.findings(
            "dead_letter.done",
            [
                Subject(letter_id, letter_id)
                for log_position, letter_id in context.log.letters.items()
                if log_position in done
            ],
            "the changes of these dead letters have been applied",
        ),
    ]


def subject_of(entry: StreamEntry) -> Subject:
    """Subject for a change in the streams, labelled with its uri and token."""
    return Subject(f"{entry.change.event.data.uri} ({entry.token})", (entry.stream, entry.entry_id))


def _unrecorded(
    context: ProjectContext, recorded: Collection[LogPosition], first: int
) -> list[StreamEntry]:
    """Acknowledged changes without an outcome.

    Changes rejected before the project existed are skipped: they are not in any ledger.
    """
    log = context.log
    return [
        entry
        for entry in log.entries
        if log.streams.handled(INDEXER, entry)
        and entry.change.position >= first
        and entry.change.log_position not in recorded
        and entry.change.log_position not in log.letters
    ]


def _left_pending(context: ProjectContext, done: Collection[LogPosition]) -> list[StreamEntry]:
    longest_ms = context.lease.total_seconds() * 1000
    cursors = context.log.streams.cursors
    return [
        entry
        for entry in context.log.entries
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
            project, log_position = _project(letter), _log_position(letter)
            if project is not None and log_position is not None:
                ids[project][log_position] = letter.id
    return ids


def _log_position(letter: DeadLetter) -> LogPosition | None:
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


async def check_outbox(context: ProjectContext) -> list[Finding]:
    """Find events that have waited for the archive for more than ten minutes."""
    stuck = await stuck_outbox(context.connection, context.generation.project_id, _LONGEST_S)
    return context.findings(
        "outbox.stuck",
        [Subject(f"event {event_id}", event_id) for event_id in stuck],
        "events wait in the outbox for an archiver",
        remedy="headrace worker --only archiver",
    )


async def check_generations(context: ProjectContext) -> list[Finding]:
    """Find leftovers of replays, unless one is running, and choices that are not in effect.

    These are models of the settings, and strategies of chunking of collections.
    """
    tools = context.tools
    generations = await tools.store.generations(context.project)
    left = [
        generation for generation in generations if generation.state in {"building", "dropping"}
    ]
    if left and await is_being_replayed(tools.database, context.generation.project_id):
        left = []
    building = [_subject(generation) for generation in left if generation.state == "building"]
    dropping = [_subject(generation) for generation in left if generation.state == "dropping"]
    return [
        *context.findings(
            "generation.unfinished",
            building,
            "a replay stopped early and left a half-built generation",
            remedy=f"headrace replay --project {context.project} with the options of that replay, "
            "or headrace replay drop ID",
        ),
        *context.findings("generation.dropping", dropping, "a generation is only partly dropped"),
        *_other_recipe(context),
        *await _strategies(context),
    ]


def _subject(generation: Generation) -> Subject:
    return Subject(f"generation {generation.id}", generation.id)


def _other_recipe(context: ProjectContext) -> Iterator[Finding]:
    if context.configured is None:
        return
    other = differing(context.generation.recipe, context.configured)
    subjects = [Subject(f"{kind or 'all kinds'}: {model}", kind) for kind, model in other.items()]
    yield from context.findings(
        "generation.recipe",
        subjects,
        "the settings name other models than the index was made with",
        remedy=" && ".join(replay_command(context.project, *choice) for choice in other.items()),
        severity=Severity.NOTE,
    )


async def _strategies(context: ProjectContext) -> list[Finding]:
    generation = context.generation
    chosen = await collections.strategies(context.connection, generation.project_id)
    live = generation.recipe.strategies
    waiting = [
        Subject(f"{name or 'all other documents'}: {strategy}", name)
        for name, strategy in chosen.items()
        if strategy != live.get(name, live.get("", AUTO))
    ]
    shared = await collections.shared_documents(
        context.connection, generation.id, (name for name in live if name)
    )
    conflicts = [
        Subject(f"{context.label(key)} in {', '.join(names)}", tuple(names), key)
        for key, names in shared.items()
        if len({live[name] for name in names}) > 1
    ]
    return [
        *context.findings(
            "generation.chunking",
            waiting,
            "another chunking was chosen for these collections than the index was made with",
            remedy=f"headrace replay --project {context.project}",
            severity=Severity.NOTE,
        ),
        *context.findings(
            "collection.conflict",
            conflicts,
            "documents are in collections with different chunking; the first by name counts",
            remedy=f"headrace collection set NAME --chunking STRATEGY --project {context.project}",
            severity=Severity.NOTE,
        ),
    ]
