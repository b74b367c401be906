"""Drafts of renditions."""

from __future__ import annotations

import pytest

from content.extractors.draft import Draft, cleaned, fence_mark
from content.rendition import MOST_BYTES, Place, Section
from runtime.errors import LimitExceeded
from tests.support.renditions import assert_well_formed


def test_equal_places_are_kept_once() -> None:
    draft = Draft()
    draft.put("a\nb", Place(fragment="x"))
    draft.put("c", Place(fragment="y"))
    draft.put("d", Place(fragment="x"))
    rendition = draft.rendition()
    assert rendition.places == (Place(fragment="x"), Place(fragment="y"))
    assert rendition.place_of == (0, 0, 1, 0)


def test_headings_begin_sections() -> None:
    draft = Draft()
    draft.block("text", Place())
    draft.heading(7, " Deep\nname ", Place(), label="label", alone=True)
    rendition = draft.rendition("A\ntitle")
    assert rendition.lines == ("text", "", "###### Deep name")
    assert rendition.sections == (Section(2, 7, "Deep name", "label", alone=True),)
    assert rendition.title == "A title"


def test_lines_and_warnings_are_cleaned() -> None:
    draft = Draft()
    draft.put("a\r\nb\rc\0d\ud800", Place())
    for number in range(20):
        draft.warn(f"{number}\r\n" + "x" * 400)
    rendition = draft.rendition()
    assert rendition.lines == ("a", "b", "cd\ufffd")
    assert len(rendition.warnings) == 16
    assert_well_formed(rendition)


def test_the_size_is_bounded() -> None:
    draft = Draft()
    draft.put("é" * (MOST_BYTES // 2 - 1), Place())
    with pytest.raises(LimitExceeded, match="8 MiB"):
        draft.put("é", Place())


def test_an_empty_draft_gives_an_empty_rendition() -> None:
    draft = Draft()
    draft.gap()
    assert draft.rendition("  ").lines == ()
    assert draft.rendition("  ").title is None


def test_plain_text_stays_as_it_is() -> None:
    assert cleaned("a\tb\n\x0c") == "a\tb\n\x0c"


@pytest.mark.parametrize(("text", "mark"), [("x", "```"), ("``", "```"), ("a\n````", "`````")])
def test_fence_marks_are_longer_than_those_in_the_text(text: str, mark: str) -> None:
    assert fence_mark(text) == mark
