"""Rendition of conversations as Markdown: a heading per thread, a paragraph per turn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from content.extractors.conversation.turns import (
    Conversations,
    Thread,
    Turn,
    turn_fragment,
)
from content.rendition import MOST_BYTES, Place, Rendition, Section
from runtime.errors import LimitExceeded

__all__ = ["render"]

_PAUSE = timedelta(hours=1)
_MOST_NAMES = 3
_LONGEST_NAME = 80
_LONGEST_HEADING = 160
_MOST_PARTICIPANTS_CHARACTERS = 500
_LEAD_TOKENS = 20
_LEAD_CHARACTERS = 400
_CHARACTERS_PER_TOKEN = 4
_LINE_END = re.compile(r"\r\n?|\n")
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_BLOCK = re.compile(r"(?:\s*$| {4}|\t| {0,3}(?:`{3}|~{3}|[-*+>|]\s|#{1,6}\s|\d{1,9}[.)]\s|\|))")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")


def render(conversations: Conversations) -> Rendition:
    """Render turns as ``**Ana** (2026-03-02 10:14): text``, with a section per thread and turn.

    More than one blank line before a turn marks a good place to cut: two before a question, three
    after a pause of an hour.

    Raises:
        LimitExceeded: the text has more than 8 MiB.
    """
    writer = _Writer(conversations.title)
    for channel in conversations.channels:
        if channel.name:
            writer.channel(channel.name)
        for thread in channel.threads:
            writer.thread(thread, 2 if channel.name else 1)
    return writer.rendition(conversations)


class _Writer:
    """Rendition under construction."""

    def __init__(self, title: str | None) -> None:
        self._title = title
        self._lines: list[str] = []
        self._place_of: list[int] = []
        self._places: list[Place] = []
        self._sections: list[Section] = []
        self._channel_row: int | None = None
        self._bytes = 0

    def channel(self, name: str) -> None:
        """Add a channel; its heading stands in its first thread, or it would be a chunk alone."""
        title = _plain_text(name, _LONGEST_HEADING)
        if title:
            self._channel_row = self._heading(title, 1)
            self._sections.append(Section(self._channel_row, 1, title))

    def thread(self, thread: Thread, level: int) -> None:
        """Add a thread, with a heading if it has a name."""
        title = _plain_text(thread.name, _LONGEST_HEADING)
        if title:
            names = dict.fromkeys(_plain_text(turn.speaker) for turn in thread.turns)
            shown = [name for name in names if name][:_MOST_NAMES]
            if thread.name != self._title:  # the document's title is in each header already
                shown.insert(0, title)
            row = self._heading(title, level)
            start = row if self._channel_row is None else self._channel_row
            self._sections.append(Section(start, level, title, ", ".join(shown), alone=True))
            self._channel_row = None
            level += 1
        by_id = {turn.id: turn for turn in thread.turns if turn.id}
        before: Turn | None = None
        for turn in thread.turns:
            answered = by_id.get(turn.reply_to) if turn.reply_to else None
            if answered is before:
                answered = None
            self._turn(turn, before, answered, level)
            before = turn

    def _heading(self, title: str, level: int) -> int:
        """Add a heading line, whose place is that of the next turn, and return its row."""
        self._blank(1)
        self._add(f"{'#' * level} {title}")
        return len(self._lines) - 1

    def _turn(self, turn: Turn, before: Turn | None, answered: Turn | None, level: int) -> None:
        self._blank(_blanks_between(before, turn) if before else 1)
        speaker = _plain_text(turn.speaker)
        if speaker:
            lead = _lead_in(before) if before else ""
            self._sections.append(Section(len(self._lines), level, speaker, lead=lead))
        for line in _turn_lines(turn, speaker, answered):
            self._add(line)
        self._places.append(
            Place(
                fragment=turn_fragment(len(self._places) + 1),
                speakers=(speaker,) if speaker else (),
                time=turn.time if isinstance(turn.time, datetime) else None,
                lines=turn.lines,
                permalink=turn.permalink,
            )
        )

    def _blank(self, count: int) -> None:
        for _ in range(count if self._lines else 0):
            self._add("")

    def _add(self, line: str) -> None:
        self._bytes += len(line.encode()) + 1
        if self._bytes > MOST_BYTES:
            raise LimitExceeded(
                f"the conversations have more than {MOST_BYTES >> 20} MiB of text",
                "export a shorter time or fewer channels, and publish several exports",
            )
        self._lines.append(line)
        self._place_of.append(len(self._places))

    def rendition(self, conversations: Conversations) -> Rendition:
        """Finish the rendition; it is empty if there are no turns."""
        if not self._places:
            return Rendition((), title=conversations.title, warnings=conversations.warnings)
        last = len(self._places) - 1
        return Rendition(
            lines=tuple(self._lines),
            places=tuple(self._places),
            place_of=tuple(min(place, last) for place in self._place_of),
            sections=tuple(self._sections),
            title=conversations.title,
            warnings=conversations.warnings,
            metadata=_metadata(conversations),
        )


def _metadata(conversations: Conversations) -> Mapping[str, str]:
    """Participants in the order of their first turns, and channel and day if there is only one."""
    names = {_plain_text(channel.name, _LONGEST_HEADING) for channel in conversations.channels}
    turns = [
        turn
        for channel in conversations.channels
        for thread in channel.threads
        for turn in thread.turns
    ]
    times = {turn.time for turn in turns}
    days = {f"{time:%Y-%m-%d}" if isinstance(time, datetime) else "" for time in times}
    speakers = dict.fromkeys(_plain_text(turn.speaker) for turn in turns if turn.speaker)
    participants = ", ".join(filter(None, speakers))[:_MOST_PARTICIPANTS_CHARACTERS]
    facts = {"channel": names, "date": days}
    single = {name: min(values) for name, values in facts.items() if len(values) == 1}
    named = single | {"participants": participants}
    return {name: value for name, value in named.items() if value}


def _turn_lines(turn: Turn, speaker: str, answered: Turn | None) -> Iterator[str]:
    """Yield the lines of a turn; a block of Markdown begins on a line of its own."""
    lines = _closed(_plain_lines(turn.text))
    facts = [_shown(turn.time)] if turn.time is not None else []
    if answered is not None and answered.speaker:
        facts.append(f"to {_plain_text(answered.speaker)}")
    start = f"**{speaker}**" if speaker else ""
    start += f" ({', '.join(facts)})" if facts else ""
    start = f"{start.lstrip()}:" if start else ""
    if start and _BLOCK.match(lines[0]):
        yield start
        yield from lines
    else:
        yield f"{start} {lines[0]}".strip()
        yield from lines[1:]


def _closed(lines: Sequence[str]) -> Sequence[str]:
    """Close a fence that the turn leaves open, so that it does not swallow the next turn."""
    mark = ""
    for line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if not mark:
            mark = fence[1] if "`" not in fence[2] or fence[1][0] == "~" else ""
        elif fence[1].startswith(mark) and not fence[2].strip():
            mark = ""
    return [*lines, mark] if mark else lines


def _blanks_between(before: Turn, turn: Turn) -> int:
    """Count of blank lines, which ranks the cut between two turns."""
    if _pause(before.time, turn.time) >= _PAUSE:
        return 3
    asks = "?" in turn.text and "?" not in before.text
    return 2 if asks else 1


def _pause(before: datetime | timedelta | None, after: datetime | timedelta | None) -> timedelta:
    if isinstance(before, datetime) and isinstance(after, datetime):
        return after - before
    if isinstance(before, timedelta) and isinstance(after, timedelta):
        return after - before
    return timedelta()


def _shown(time: datetime | timedelta) -> str:
    if isinstance(time, datetime):
        return time.strftime("%Y-%m-%d %H:%M")
    minutes, seconds = divmod(int(time.total_seconds()), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _lead_in(turn: Turn) -> str:
    """End of a turn, in about 20 tokens, for the header of a chunk that begins with the next turn.

    It is empty if there are no short words.
    """
    speaker = _plain_text(turn.speaker)
    start = f"… {speaker}: " if speaker else "… "
    room = _LEAD_TOKENS - _tokens(start)
    words: list[str] = []
    for word in reversed(_plain_text(turn.text[-_LEAD_CHARACTERS:], _LEAD_CHARACTERS).split()):
        room -= _tokens(word)
        if room < 0:
            break
        words.append(word)
    return start + " ".join(reversed(words)) if words else ""


def _tokens(text: str) -> int:
    """Estimate of the tokens of a word: letters outside of ASCII count one each."""
    ascii_letters = sum(character.isascii() for character in text)
    return math.ceil(ascii_letters / _CHARACTERS_PER_TOKEN) + len(text) - ascii_letters


def _plain_lines(text: str) -> Sequence[str]:
    """Lines of a text without the characters that a rendition may not contain."""
    return [line.rstrip() for line in _LINE_END.split(_NOT_TEXT.sub("", text).strip("\r\n"))]


def _plain_text(text: str, longest: int = _LONGEST_NAME) -> str:
    """Collapse blanks and drop marks of emphasis, for a name or a label in one line."""
    line = " ".join(_NOT_TEXT.sub("", text[: 4 * longest]).replace("*", "").split())
    return line[:longest].rstrip()
