"""Places of lines, united to the place of a chunk."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from content.places import locator_of, rendered, united
from content.rendition import Box, Place


def test_a_chunk_over_two_pages_has_a_box_on_each() -> None:
    """The boxes of the lines are united per page, and the first page is cited."""
    places = [
        Place(page=2, box=Box(72, 700, 300, 712.04), fragment="page=2"),
        Place(page=2, box=Box(80, 680, 320, 692), fragment="page=2"),
        Place(page=3, box=Box(72, 90, 200, 102), fragment="page=3"),
    ]
    assert locator_of(places) == {
        "pages": [[2, 72, 680, 320, 712.0], [3, 72, 90, 200, 102]],
        "page": 2,
        "fragment": "page=2",
    }


@pytest.mark.parametrize(
    ("fragments", "united"),
    [
        (["cell=12"], "cell=12"),
        (["cell=12", "cell=12"], "cell=12"),
        (["cell=12", "cell=14"], "cell=12-14"),
        (["turns=3-5", "turns=9"], "turns=3-9"),
        (["slide=9", "slide=10"], "slide=9-10"),
        (["Costs!A2:F2", "Costs!A3:F41"], "Costs!A2:F41"),
        (["Costs!Z2:AA2", "Costs!B3"], "Costs!B2:AA3"),
        (["A2:C2", "A9:B9"], "A2:C9"),
        (["Costs!A2:F2", "Staff!A1:B7"], "Costs!A2:F2"),
        (["GET /pets", "schema Pet"], "GET /pets"),
        (["", "intro"], "intro"),
    ],
)
def test_fragments_of_neighbours_become_one(fragments: list[str], united: str) -> None:
    """Numbers and cells become ranges; of other fragments, the first is cited."""
    locator = locator_of([Place(fragment=fragment) for fragment in fragments])
    assert locator == {"fragment": united}


def test_speakers_times_and_lines_are_those_of_all_turns() -> None:
    """Each speaker is named once, with the first and last time and line."""
    first, last = datetime(2026, 3, 2, 10, tzinfo=UTC), datetime(2026, 3, 2, 11, tzinfo=UTC)
    places = [
        Place(speakers=("Ana",), time=last, lines=(7, 9)),
        Place(speakers=("Ben",), time=first, lines=(3, 4)),
        Place(speakers=("Ana",)),
    ]
    assert locator_of(places) == {
        "speakers": ["Ana", "Ben"],
        "times": [first.isoformat(), last.isoformat()],
        "lines": [3, 9],
    }


def test_lines_without_a_place_give_no_locator() -> None:
    assert locator_of([Place(), Place()]) is None


def test_the_first_address_is_that_of_the_chunk() -> None:
    """A chunk of several messages leads to the first one that has an address."""
    places = [Place(), Place(permalink="https://chat.example/2"), Place(permalink="https://x")]
    assert locator_of(places) == {"permalink": "https://chat.example/2"}


def test_a_text_is_rendered_between_the_lines_around_it() -> None:
    """Opening and closing lines are optional, and a text without them stays as it is."""
    assert (
        rendered("a = 1", {"opening": "```py", "closing": "```", "page": 2}) == "```py\na = 1\n```"
    )
    assert rendered("a = 1", {"closing": "```"}) == "a = 1\n```"
    assert rendered("| 1 |", {"opening": "| a |\n|---|"}) == "| a |\n|---|\n| 1 |"
    assert rendered("text", {"page": 2}) == rendered("text", None) == "text"


def test_locators_of_neighbours_become_one() -> None:
    """Boxes, fragments, speakers and times are united; a fence begins and ends as its parts do."""
    first = {
        "pages": [[2, 72, 700, 300, 712]],
        "page": 2,
        "fragment": "turns=3-5",
        "speakers": ["Ana"],
        "times": ["2026-03-02T10:00:00", "2026-03-02T11:00:00"],
        "lines": [3, 4],
        "opening": "```py",
        "closing": "```",
    }
    second = {
        "pages": [[2, 80, 680, 320, 692], [3, 1, 1, 2, 2]],
        "page": 2,
        "fragment": "turns=9",
        "speakers": ["Ben", "Ana"],
        "times": ["2026-03-02T12:00:00", "2026-03-02T12:00:00"],
        "lines": [7, 9],
        "permalink": "https://chat.example/9",
        "opening": "```sh",
    }
    assert united([first, None, second]) == {
        "pages": [[2, 72, 680, 320, 712], [3, 1, 1, 2, 2]],
        "page": 2,
        "fragment": "turns=3-9",
        "speakers": ["Ana", "Ben"],
        "times": ["2026-03-02T10:00:00", "2026-03-02T12:00:00"],
        "lines": [3, 9],
        "permalink": "https://chat.example/9",
        "opening": "```py",
    }
    assert united([None, None]) is None
