"""Turns of a conversation, the threads and channels that they form, and how citations name them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = [
    "Channel",
    "Conversations",
    "Thread",
    "Turn",
    "day_name",
    "in_order",
    "turn_fragment",
]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message.

    ``time`` is a moment in UTC, or the time since the start of a recording. ``reply_to`` is the id
    of the turn that this one answers explicitly. ``text`` is Markdown. ``lines`` is the first and
    last line in the original, from 1, if the original is text. ``permalink`` is the address of the
    message, if the export has what is needed for it.
    """

    id: str
    speaker: str
    time: datetime | timedelta | None
    text: str
    reply_to: str | None = None
    permalink: str | None = None
    lines: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    """Turns that belong together, in order: a thread, a day of a channel, a chat."""

    name: str
    turns: Sequence[Turn]


@dataclass(frozen=True, slots=True)
class Channel:
    """Threads of a channel, in order. The name is empty if the export has no channels."""

    name: str
    threads: Sequence[Thread]


@dataclass(frozen=True, slots=True)
class Conversations:
    """Content of one export."""

    channels: Sequence[Channel]
    title: str | None = None
    warnings: tuple[str, ...] = ()


def in_order(turns: Iterable[Turn]) -> Sequence[Turn]:
    """Sort turns by time; those without a time come last, and equal ones keep their order."""
    return sorted(turns, key=_seconds)


def _seconds(turn: Turn) -> float:
    return turn.time.timestamp() if isinstance(turn.time, datetime) else math.inf


def day_name(turn: Turn) -> str:
    """Name of the thread of a turn that is in no other one: its day in UTC."""
    return f"{turn.time:%Y-%m-%d}" if isinstance(turn.time, datetime) else "Without date"


def turn_fragment(number: int) -> str:
    """Fragment of a turn of a document, from 1; ``content.places`` joins those of a chunk."""
    return f"turns={number}"
