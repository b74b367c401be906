"""Lines of exact search: their marks, and the bounds of what is shown."""

from __future__ import annotations

from store.search.lines import CLOSE, MOST_MARKS, OPEN, marked_lines, read_marks


def marked(text: str) -> str:
    return f"{OPEN}{text}{CLOSE}"


def test_spans_are_the_places_of_marks() -> None:
    text = f"no\nthe {marked('gate')} and {marked('gate')}s{marked('')}\n{marked('')}\nno"
    lines = marked_lines(text, start_line=7, chunk_id=1)
    assert [tuple(line) for line in read_marks([*lines])] == [
        (8, "the gate and gates", ((4, 8), (13, 17)), 0),
        (9, "", (), 0),
    ]


def test_many_matches_of_a_passage_have_no_span() -> None:
    """Each line has its first one, so that it is seen to match."""
    lines = marked_lines("\n".join([marked("x") * (MOST_MARKS - 1)] * 3), 1, 1)
    spans = [(len(line.spans or ()), line.unmarked) for line in read_marks([*lines])]
    assert spans == [(MOST_MARKS - 1, 0), (1, MOST_MARKS - 2), (1, MOST_MARKS - 2)]


def test_matches_of_no_character_leave_the_spans_to_others() -> None:
    [line] = read_marks([*marked_lines(f"{marked('')}a" * 100 + marked("12"), 1, 1)])
    assert (line.spans, line.unmarked) == (((100, 102),), 0)


def test_a_long_line_is_cut_around_its_first_match() -> None:
    """Matches outside of the part have no span; one that crosses its end is cut."""
    text = "a" * 9_000 + marked("12") + "b" * 1_490 + marked("3" * 20) + "c" * 9_000 + marked("4")
    [line] = read_marks([*marked_lines(text, 1, 1)])
    assert len(line.text) == 2_000
    assert [line.text[start:end] for start, end in line.spans or ()] == ["12", "3" * 8]
    assert line.unmarked == 1
