"""Dead letters by the log position of their change."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping

from redis.asyncio import Redis

from events.dead_letters import DeadLetter, DeadLetters
from events.names import Names, Position, Topic
from processors.replaying.folding import Order
from runtime.errors import MalformedEvent, SignatureRefused

__all__ = ["letters_by_project"]

_MOST = 1_000_000
_CHANGES = (Topic.CHANGED_LIVE, Topic.CHANGED_BULK)
_UNPROVED = frozenset({SignatureRefused.__name__, MalformedEvent.__name__})


async def letters_by_project(redis: Redis, names: Names) -> Mapping[str, Mapping[Order, str]]:
    """Read ids of dead letters by project and log position; letters that lack one are skipped.

    Raises:
        Unavailable: Redis can't be reached.
    """
    ids: defaultdict[str, dict[Order, str]] = defaultdict(dict)
    for topic in _CHANGES:
        for letter in await DeadLetters(redis, names).list(_MOST, topic):
            project, order = _project(letter), _order(letter)
            if project is not None and order is not None:
                ids[project][order] = letter.id
    return ids


def _order(letter: DeadLetter) -> Order | None:
    """Log position of a dead letter's change.

    If its signature was refused, this is the position of its entry; an asserted position is not
    trusted then.
    """
    if letter.position is None or letter.error not in _UNPROVED:
        return None if letter.position is None else (letter.position, letter.partition)
    try:
        own = Position(Topic(letter.topic).lane, letter.partition, letter.entry_id).number
    except (ValueError, MalformedEvent):
        return None
    return own, letter.partition


def _project(letter: DeadLetter) -> str | None:
    try:
        event = json.loads(letter.event)
        return str(event["data"]["project"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
