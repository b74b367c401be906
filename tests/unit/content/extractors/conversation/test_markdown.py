"""Rendition of turns as Markdown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from content.extractors.conversation import markdown
from content.extractors.conversation.markdown import render
from content.extractors.conversation.turns import Channel, Conversations, Thread, Turn
from content.rendition import Place, Rendition, Section
from runtime.errors import LimitExceeded

MORNING = datetime(2026, 3, 2, 10, 14, tzinfo=UTC)


def said(speaker: str, text: str, minutes: int = 0, **options: str) -> Turn:
    time = MORNING + timedelta(minutes=minutes)
    return Turn(options.get("id", text), speaker, time, text, options.get("reply_to"))


def rendered(*turns: Turn, name: str = "") -> Rendition:
    return render(Conversations([Channel("", [Thread(name, turns)])]))


def test_a_channel_with_a_thread() -> None:
    """Channel and thread are headings, a turn is a paragraph, and each line has its turn."""
    turns = [said("Ana", "Does it start?"), said("Ben", "Yes.\nIt does.", 1)]
    rendition = render(Conversations([Channel("dev", [Thread("2026-03-02", turns)])], "Export"))
    assert rendition == Rendition(
        lines=(
            "# dev",
            "",
            "## 2026-03-02",
            "",
            "**Ana** (2026-03-02 10:14): Does it start?",
            "",
            "**Ben** (2026-03-02 10:15): Yes.",
            "It does.",
        ),
        places=(
            Place(fragment="turns=1", speakers=("Ana",), time=MORNING),
            Place(fragment="turns=2", speakers=("Ben",), time=MORNING + timedelta(minutes=1)),
        ),
        place_of=(0, 0, 0, 0, 0, 1, 1, 1),
        sections=(
            Section(0, 1, "dev"),
            Section(0, 2, "2026-03-02", "2026-03-02, Ana, Ben", alone=True),
            Section(4, 3, "Ana"),
            Section(6, 3, "Ben", lead="… Ana: Does it start?"),
        ),
        title="Export",
        metadata={"channel": "dev", "date": "2026-03-02", "participants": "Ana, Ben"},
    )


def test_several_channels_and_days_are_not_metadata() -> None:
    """What is not the same for all turns can't be filtered by."""
    late = said("Ana", "late", minutes=24 * 60)
    channels = [
        Channel(name, [Thread("", [turn])]) for name, turn in (("a", said("Ana", "x")), ("b", late))
    ]
    assert render(Conversations(channels)).metadata == {"participants": "Ana"}
    assert render(Conversations(channels[:1])).metadata == {
        "channel": "a",
        "date": "2026-03-02",
        "participants": "Ana",
    }
    assert rendered(Turn("1", "Ana", timedelta(seconds=1), "x")).metadata == {"participants": "Ana"}


def test_participants_are_metadata_in_the_order_of_their_first_turns() -> None:
    """Each participant is named once; a conversation without speakers has none."""
    turns = [said("Ben", "x"), said("Ana", "y"), said("Ben", "z")]
    assert rendered(*turns).metadata["participants"] == "Ben, Ana"
    crowd = rendered(*(said(f"Member {number}", "x") for number in range(100)))
    assert len(crowd.metadata["participants"]) == 500
    assert "participants" not in rendered(said("", "x")).metadata


def test_the_title_is_not_repeated_in_the_label() -> None:
    """A thread that is named like the document is labelled by at most three participants."""
    turns = [said(name, "hello") for name in ("Ana", "Ben", "Cyd", "Dan")]
    rendition = render(Conversations([Channel("", [Thread("Talk", turns)])], "Talk"))
    assert rendition.sections[0] == Section(0, 1, "Talk", "Ana, Ben, Cyd", alone=True)


def test_blank_lines_rank_the_cuts() -> None:
    """One blank line parts turns, two precede a question, and three follow an hour of silence."""
    turns = [said("A", "a"), said("B", "b", 1), said("A", "c?", 2), said("B", "d", 62)]
    lines = rendered(*turns).lines
    blanks = [list(lines[:row]).count("") for row, line in enumerate(lines) if line]
    assert blanks == [0, 1, 3, 6]


def test_replies_name_whom_they_answer() -> None:
    """A reply names the speaker of its turn, unless that is the turn right before."""
    lines = rendered(
        said("Ana", "one", id="1"),
        said("Ben", "two", id="2"),
        said("Cyd", "three", reply_to="1"),
        said("Dan", "four", reply_to="three"),
        said("Eve", "five", reply_to="lost"),
    ).lines
    assert [line for line in lines if line][2:] == [
        "**Cyd** (2026-03-02 10:14, to Ana): three",
        "**Dan** (2026-03-02 10:14): four",
        "**Eve** (2026-03-02 10:14): five",
    ]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("```\ncode\n```", ["**Ana**:", "```", "code", "```"]),
        ("- a\n- b", ["**Ana**:", "- a", "- b"]),
        ("see\n```py\nopen", ["**Ana**: see", "```py", "open", "```"]),
        ("~~~\n```\n~~~", ["**Ana**:", "~~~", "```", "~~~"]),
        ("a\r\nb\rc\0\ud800d ", ["**Ana**: a", "b", "cd"]),
        ("", ["**Ana**:", ""]),
    ],
)
def test_blocks_of_markdown(text: str, lines: list[str]) -> None:
    """A block begins on a line of its own, a fence is closed, and lines hold text only."""
    assert list(rendered(Turn("", "Ana", None, text)).lines) == lines


def test_names_are_plain() -> None:
    """Marks of emphasis and line ends in a name do not reach the Markdown."""
    rendition = rendered(Turn("", "*Ana*\n**B**", None, "x"), name="a\nb * c")
    assert rendition.lines == ("# a b c", "", "**Ana B**: x")
    assert rendered(Turn("", "***", None, "x"), name="\0").lines == ("x",)


def test_times_of_a_recording() -> None:
    """A time since the start is shown, and is no moment of the place."""
    rendition = rendered(Turn("", "Ana", timedelta(hours=1, seconds=75.9), "x"))
    assert rendition.lines == ("**Ana** (1:01:15): x",)
    assert rendition.places[0].time is None
    assert rendered(Turn("", "", timedelta(), "x")).lines == ("(0:00:00): x",)


@pytest.mark.parametrize(
    ("text", "lead"),
    [
        ("short", "… Ana: short"),
        ("word " * 100, "… Ana: " + " ".join(["word"] * 17)),
        ("漢" * 5 + " " + "字" * 13, "… Ana: " + "字" * 13),
        ("x" * 500, ""),
    ],
)
def test_the_end_of_the_turn_before(text: str, lead: str) -> None:
    """The lead of a turn is the end of the one before, in about 20 tokens."""
    rendition = rendered(Turn("", "Ana", None, text), Turn("", "Ben", None, "y"))
    assert rendition.sections[1] == Section(
        rendition.lines.index("**Ben**: y"), 1, "Ben", lead=lead
    )


def test_nothing_said_gives_nothing() -> None:
    """Headings without turns are left out."""
    rendition = render(Conversations([Channel("dev", [])], "Export", ("a warning",)))
    assert rendition == Rendition((), title="Export", warnings=("a warning",))


def test_the_text_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text over the limit is refused while it is written."""
    monkeypatch.setattr(markdown, "MOST_BYTES", 40)
    assert rendered(Turn("", "", None, "x" * 39)).lines
    with pytest.raises(LimitExceeded, match="more than"):
        rendered(Turn("", "", None, "é" * 20))
