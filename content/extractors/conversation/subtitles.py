"""Readers of subtitles: WebVTT and SubRip (SRT)."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from content.extractors.conversation.turns import Channel, Conversations, Thread, Turn

__all__ = ["is_subtitles", "read_subtitles"]

_TIMING = re.compile(
    r"[ \t]*(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})[ \t]+-->"
    r"[ \t]+(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
)
_IS_SUBTITLES = re.compile(r"(?:WEBVTT(?:[ \t\n]|$)|\s*\d+[ \t]*\n" + _TIMING.pattern + r")")
_VOICE = re.compile(r"<v(?:\.[^\s>]*)?[ \t]+([^>]{1,200})>", re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^>]{0,200}>|<[\d:.]{1,20}>|\{\\[^}]{0,50}\}")
_SPEAKER = re.compile(r"(?:>>\s*|-\s*)?([^\W\d_][\w.'\u2019() -]{0,40}?):\s+(?=\S)")
_MOST_SPEAKER_WORDS = 4
_ENDS = (".", "!", "?", "\u2026", "\u3002", "\uff01", "\uff1f", '."', '!"', '?"')
"""The ends of sentences, also in Chinese and Japanese."""
_TURN_CHARACTERS = 400
_PAUSE = timedelta(seconds=10)
_AT_ONCE = timedelta(milliseconds=50)


@dataclass(frozen=True, slots=True)
class _Cue:
    """A line that is shown, on row ``line`` of the file (from 1), with times since the start."""

    start: timedelta
    end: timedelta
    speaker: str
    text: str
    line: int


def is_subtitles(text: str) -> bool:
    """Return whether a text begins as WebVTT or SubRip."""
    return _IS_SUBTITLES.match(text) is not None


def read_subtitles(text: str) -> Conversations:
    """Join cues to turns: up to a change of the speaker, or a pause of ten seconds.

    A longer turn ends with the first sentence that ends after 400 characters, or after 1,600.
    """
    turns: list[Turn] = []
    run: list[_Cue] = []
    for cue in _without_repeats(_cues(text.split("\n"))):
        if run and _is_new_turn(run, cue):
            turns.append(_turn(run))
            run = []
        run.append(cue)
    if run:
        turns.append(_turn(run))
    return Conversations([Channel("", [Thread("", turns)] if turns else ())])


def _is_new_turn(run: Sequence[_Cue], cue: _Cue) -> bool:
    last = run[-1]
    if cue.speaker != last.speaker or cue.start - last.end >= _PAUSE:
        return True
    length = sum(len(part.text) for part in run)
    is_sentence = last.text.endswith(_ENDS)
    return length >= (_TURN_CHARACTERS if is_sentence else 4 * _TURN_CHARACTERS)


def _turn(run: Sequence[_Cue]) -> Turn:
    return Turn(
        id="",
        speaker=run[0].speaker,
        time=run[0].start,
        text="\n".join(cue.text for cue in run),
        lines=(run[0].line, run[-1].line),
    )


def _cues(lines: Sequence[str]) -> Iterator[_Cue]:
    """Yield the lines of cues; notes, styles, regions and names of cues are left out.

    A speaker is named by a tag for one cue, or by ``Name:`` until the next name.
    """
    names = _repeated_names(lines)
    speaker = ""
    row = 0
    while row < len(lines):
        timing = _TIMING.match(lines[row])
        row += 1
        if timing is None:
            continue
        start, end = _time(timing.groups()[:4]), _time(timing.groups()[4:])
        voice = ""
        while row < len(lines) and lines[row].strip():
            tag = _VOICE.search(lines[row])
            voice = html.unescape(tag[1]).strip() if tag else voice
            text = _without_tags(lines[row])
            row += 1
            name = _SPEAKER.match(text)
            if not voice and name is not None and name[1] in names:
                speaker, text = name[1], text[name.end() :]
            if text:
                yield _Cue(start, end, voice or speaker, text, row)


def _repeated_names(lines: Sequence[str]) -> frozenset[str]:
    """Names before a colon that occur twice or more; others may just be words of a sentence."""
    matches = (_SPEAKER.match(_without_tags(line)) for line in lines)
    counts = Counter(match[1] for match in matches if match)
    return frozenset(
        name
        for name, count in counts.items()
        if count > 1 and len(name.split()) <= _MOST_SPEAKER_WORDS and not name[0].islower()
    )


def _without_tags(line: str) -> str:
    return " ".join(html.unescape(_TAG.sub("", line)).split())


def _time(parts: Sequence[str | None]) -> timedelta:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return timedelta(
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds),
        milliseconds=int(fraction.ljust(3, "0")),
    )


def _without_repeats(cues: Iterable[_Cue]) -> Iterator[_Cue]:
    """Leave out lines that rolling captions show again in the cue that follows at once."""
    before: list[_Cue] = []
    current: list[_Cue] = []
    for cue in cues:
        if current and cue.start != current[0].start:
            before, current = current, []
        current.append(cue)
        repeated = any(
            cue.text == last.text and cue.start - last.end <= _AT_ONCE for last in before
        )
        if not repeated:
            yield cue
