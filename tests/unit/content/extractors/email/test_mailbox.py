"""Extraction of mailboxes."""

from __future__ import annotations

import pytest

from content.extractors.email import extract
from content.extractors.email.mailbox import MOST_MESSAGES
from runtime.errors import LimitExceeded
from tests.support.renditions import assert_well_formed, assert_withstands_damage


def _message(
    name: str,
    identifier: str,
    body: str,
    *,
    subject: str = "Plans",
    reply_to: str = "",
    hour: int = 1,
) -> str:
    references = f"References: <{reply_to}>\n" if reply_to else ""
    return (
        f"From {name.lower()}@example.org Mon Mar  2 10:14:00 2026\n"
        f"From: {name} <{name.lower()}@example.org>\nSubject: {subject}\n"
        f"Message-ID: <{identifier}>\n{references}Date: Mon, 2 Mar 2026 {hour:02}:14:00 +0000\n\n"
        f"{body}\n\n"
    )


_FIRST = _message("Ana", "a", "Shall we go?\n\n>From here?")
_REPLY = _message(
    "Ben",
    "b",
    "On Monday, Ana <ana@example.org>\nwrote:\n\n> Shall we go?\n\nYes.",
    subject="Re: Plans",
    reply_to="a",
    hour=3,
)
_OTHER = _message("Eva", "c", "> only this", subject="Lunch", hour=2)


def test_a_thread_is_a_section_of_turns() -> None:
    rendition = extract((_FIRST + _OTHER + _REPLY).encode())
    assert_well_formed(rendition)
    assert rendition.lines == (
        *("# Plans", "", "**Ana** (2026-03-02 01:14): Shall we go?", "", "From here?", ""),
        *("**Ben** (2026-03-02 03:14): Yes.", ""),
        *("# Lunch", "", "**Eva** (2026-03-02 02:14):", "> only this"),
    )
    assert [(section.level, section.name, section.alone) for section in rendition.sections] == [
        (1, "Plans", True),
        (2, "Ana", False),
        (2, "Ben", False),
        (1, "Lunch", True),
        (2, "Eva", False),
    ]
    turns = [rendition.places[place] for place in rendition.place_of]
    assert turns[6].fragment == "turns=2"
    assert turns[6].speakers == ("Ben",)
    assert rendition.title is None


def test_a_mailbox_of_a_single_thread_has_its_subject_as_title() -> None:
    assert extract((_FIRST + _REPLY).encode()).title == "Plans"


def test_replies_to_a_missing_message_are_one_thread() -> None:
    replies = [_message(name, name, "text", reply_to="missing") for name in ("Ana", "Ben")]
    sections = extract("".join(replies).encode()).sections
    assert [section.name for section in sections] == ["Plans", "Ana", "Ben"]


def test_turns_are_in_order_of_time() -> None:
    late = _message("Ana", "a", "late", hour=9)
    early = _message("Ben", "b", "early", reply_to="a", hour=8)
    names = [section.name for section in extract((late + early).encode()).sections]
    assert names == ["Plans", "Ben", "Ana"]


def test_a_forwarded_original_is_left_out() -> None:
    reply = _message("Ben", "b", "Yes.\n\n-----Original Message-----\nold", reply_to="a", hour=2)
    assert "old" not in extract((_FIRST + reply).encode()).lines


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="20,000 messages"):
        extract(b"From x\n\n" * (MOST_MESSAGES + 1))


def test_damaged_mailboxes_are_extracted_or_refused() -> None:
    assert_withstands_damage(extract, [(_FIRST + _OTHER + _REPLY).encode()], 200)
