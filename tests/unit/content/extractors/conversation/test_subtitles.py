"""Subtitles."""

from __future__ import annotations

import pytest

from content.extractors.conversation.extractor import extract

VTT = """WEBVTT - a talk

NOTE
not shown

STYLE
::cue { color: red }

intro
00:01.000 --> 00:04.000 align:start
<v Ana Ash>Welcome &amp; <i>hello</i>
<v Ben>Thanks

00:04.000 --> 01:00:06.500
<v Ben>It is <00:05.000>good

01:00:20.000 --> 01:00:21.000
a voice
"""

SRT = """1
00:00:01,000 --> 00:00:02,000
ANA: Where do
we start?

2
00:00:02,000 --> 00:00:03,000
- BEN: Here: look.

3
00:00:03,000 --> 00:00:04,000
<b>And here.</b>

4
00:00:04,000 --> 00:00:05,000
ANA: Remember: twice.

5
00:00:05,000 --> 00:00:06,000
BEN: Yes.
"""


def test_webvtt() -> None:
    """Voices are speakers, cues of one are joined, and notes and styles are left out."""
    rendition = extract(VTT.replace("\n", "\r\n").encode())
    assert [line for line in rendition.lines if line] == [
        "**Ana Ash** (0:00:01): Welcome & hello",
        "**Ben** (0:00:01): Thanks",
        "It is good",
        "(1:00:20): a voice",
    ]
    assert [place.lines for place in rendition.places] == [(11, 11), (12, 15), (18, 18)]
    assert rendition.places[1].speakers == ("Ben",)
    assert rendition.places[2].speakers == ()


def test_subrip() -> None:
    """Names before a colon that recur are speakers, up to the next name."""
    assert [line for line in extract(SRT.encode()).lines if line] == [
        "**ANA** (0:00:01): Where do",
        "we start?",
        "**BEN** (0:00:02): Here: look.",
        "And here.",
        "**ANA** (0:00:04): Remember: twice.",
        "**BEN** (0:00:05): Yes.",
    ]


def cues(*lines: str, seconds: int = 1) -> bytes:
    times = [
        f"{number:02}:00.000 --> {number:02}:{59 if seconds > 1 else 0:02}.990"
        for number in range(len(lines))
    ]
    body = "\n\n".join(f"{time}\n{line}" for time, line in zip(times, lines, strict=True))
    return f"WEBVTT\n\n{body}\n".encode()


def test_rolling_captions_are_shown_once() -> None:
    """A line that a following cue repeats is one line; the same words later are another."""
    raw = cues("so we", "so we\nbegin here", "begin here\nnow", "so we", seconds=60)
    assert [line for line in extract(raw).lines if line] == [
        "(0:00:00): so we",
        "begin here",
        "now",
        "so we",
    ]


def test_long_speech_is_parted() -> None:
    """A pause ends a turn; without one it ends with a sentence, or at the latest by length."""
    assert len(extract(cues("a", "b")).places) == 2
    sentence = "word " * 20 + "end."
    turns = extract(cues(*[sentence] * 40, seconds=60)).places
    assert len(turns) == 1  # the same line is shown again
    sentences = [f"{number} {sentence}" for number in range(40)]
    assert len(extract(cues(*sentences, seconds=60)).places) == 10
    endless = [f"{number} {sentence[:-1]}" for number in range(40)]
    assert len(extract(cues(*endless, seconds=60)).places) == 3


@pytest.mark.parametrize("text", ["WEBVTT", "WEBVTT\n\n00:01.000 --> 00:02.000\n\n"])
def test_subtitles_without_text(text: str) -> None:
    """Empty subtitles give an empty rendition."""
    assert extract(text.encode()).lines == ()
