"""Reader of transcripts: text in which a turn begins with ``Name: …`` at a line's start."""

from __future__ import annotations

import re
from collections.abc import Sequence

from content.extractors.conversation.markdown import lead_in, plain_lines
from content.extractors.conversation.turns import Turn, turns_fragment
from content.rendition import Place, Rendition, Section

__all__ = ["has_turns", "render_transcript"]

_TURN = re.compile(
    r"(?:\[[^\]]{1,40}\]\s*|\d[\d/.,: \u202fAPMapm-]{5,30} - )?[*_#]{0,4}\s?"
    r"([A-Z@][\w.@-]*(?: [\w.()@-]+){0,3})[*_]{0,3}:[*_]{0,3}(?:\s|$)"
)
_FEWEST_TURNS = 2


def has_turns(text: str) -> bool:
    """Return whether at least two turns begin in a text."""
    starts = (line for line in plain_lines(text) if _TURN.match(line))
    return next(starts, None) is not None and next(starts, None) is not None


def render_transcript(text: str) -> Rendition:
    """Return the lines as they are, with a section per turn.

    A text with less than two turns has no sections. Times stay in the text: their order of day,
    month and year can't be known.
    """
    lines = plain_lines(text)
    starts = [(row, match[1]) for row, line in enumerate(lines) if (match := _TURN.match(line))]
    if len(starts) < _FEWEST_TURNS:
        starts = []
    places: list[Place] = []
    sections: list[Section] = []
    number = 0
    for row in range(len(lines)):
        if number < len(starts) and starts[number][0] == row:
            sections.append(_section(lines, starts, number))
            number += 1
        where = (row + 1, row + 1)
        speaker = starts[number - 1][1] if number else ""
        places.append(
            Place(fragment=turns_fragment(number, number), speakers=(speaker,), lines=where)
            if number
            else Place(lines=where)
        )
    return Rendition(lines, places, range(len(lines)), sections)


def _section(lines: Sequence[str], starts: Sequence[tuple[int, str]], number: int) -> Section:
    row, speaker = starts[number]
    if number == 0:
        return Section(row, 1, speaker)
    before, name = starts[number - 1]
    text = "\n".join(lines[before:row])
    match = _TURN.match(lines[before])
    said = text[match.end() :] if match else text
    return Section(row, 1, speaker, lead_in(Turn("", name, None, said)))
