"""Dead letters by the change that they are of."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping

from redis.asyncio import Redis

from events.dead_letters import DeadLetter, DeadLetters
from events.names import Names, Topic
from processors.replaying.folding import Order

__all__ = ["letters_by_project"]

_MOST = 1_000_000
_CHANGES = (Topic.CHANGED_LIVE, Topic.CHANGED_BULK)


async def letters_by_project(redis: Redis, names: Names) -> Mapping[str, Mapping[Order, str]]:
    """Ids of dead letters by project and place in the log; what names neither is left out.

    Raises:
        Unavailable: Redis can't be reached.
    """
    found: defaultdict[str, dict[Order, str]] = defaultdict(dict)
    for topic in _CHANGES:
        for letter in await DeadLetters(redis, names).list(_MOST, topic):
            project = _project(letter)
            if project is not None and letter.position is not None:
                found[project][letter.position, letter.partition] = letter.id
    return found


def _project(letter: DeadLetter) -> str | None:
    try:
        event = json.loads(letter.event)
        return str(event["data"]["project"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
