"""Names that are drawn from sources, to be asked for."""

from __future__ import annotations

import pytest

from bench.repositories import (
    NamedDefinition,
    definitions_in,
    firsts_of_sections,
    has_repeats,
    names_of,
    row_of,
)
from events.models import SearchResult

PYTHON = """class Client:
    def send(self): ...
class Session:
    def send(self): ...
    def close_all(self): ...
def __getattr__(name): ...
"""
GO = "type Command struct {\n}\nfunc (c *Command) Execute() error {\n}\nfunc ld(a string) int {\n"


def test_definitions_are_read_from_sources() -> None:
    """Each class, method and function of Python and Go has its owner and its line."""
    assert list(definitions_in("a.go", GO)) == [
        NamedDefinition("", "Command", 1),
        NamedDefinition("Command", "Execute", 3),
        NamedDefinition("", "ld", 5),
    ]
    assert NamedDefinition("Session", "send", 4) in list(definitions_in("a.py", PYTHON))


def test_a_name_of_several_classes_is_asked_for_with_its_class() -> None:
    """Names are unambiguous, and those of tests are left out."""
    names = dict(names_of({"src/a.py": PYTHON, "tests/test_a.py": "def helper_of_test(): ..."}))
    assert names == {
        "Client": [("src/a.py", 1)],
        "Client.send": [("src/a.py", 2)],
        "Session": [("src/a.py", 3)],
        "Session.send": [("src/a.py", 4)],
        "close_all": [("src/a.py", 5)],
    }


def _result(uri: str, content: str, symbol: str | None = None) -> SearchResult:
    citation = {"uri": uri, "start_line": 3, "end_line": 9, "symbol": symbol, "heading_path": ()}
    return SearchResult.model_validate(
        {
            "chunk_id": 1,
            "content": content,
            "kind": "code",
            "citation": citation,
            "scores": {"fused": 0.5},
            "match_type": "hybrid",
            "explanation": "together 0.500",
        }
    )


def test_two_passages_of_one_function_are_repeats() -> None:
    """A function of the same name in another file is another one, and a section is none."""
    first = _result("a.py", "", "Client.send")
    both = _result("a.py", "", "Client.close, Client.send")
    section = _result("a.py", "", "send").model_copy(update={"kind": "markdown"})
    assert has_repeats([first, section, both])
    assert not has_repeats([first, section, section, _result("b.py", "", "Client.send")])


def test_the_first_result_of_the_fitting_section_counts() -> None:
    """A section fits if an expected answer is in it, by the kind of its file."""
    code = [_result(uri, "").model_copy(update={"section": "code"}) for uri in ("a.py", "b.py")]
    page = _result("a.md", "").model_copy(update={"section": "documents"})
    files = {"b.py": "x = 1\n", "a.md": "# A\n"}
    results = [page, *code]
    assert firsts_of_sections(["b.py|x"], files, results) == [code[0]]
    both = firsts_of_sections(["b.py|x", "a.md|A"], files, results)
    assert {result.citation.uri for result in both} == {"a.py", "a.md"}
    assert firsts_of_sections(["a.md|A"], files, code) == []


@pytest.mark.parametrize(
    ("results", "expected", "met"),
    [
        ([("a.py", "def send(): ...", "send")], "1", True),
        ([("a.py", "    return sent", "Client.send")], "1", True),
        (
            [("b.py", "def send()", None), ("a.py", "def send()", None)],
            "2: a.py:3-9; together",
            False,
        ),
        ([("a.py", "def sender(): ...", "sender")], "a.py|def send(: not in the results", False),
    ],
)
def test_a_row_shows_the_first_result_and_the_right_one(
    results: list[tuple[str, str, str | None]],
    expected: str,
    met: bool,
) -> None:
    """A result is right if it has the text in that file, or is a part of the unit."""
    item = {"repository": "r", "question": "how?", "answers": ["a.py|def send("]}
    row = row_of(item, [_result(*fields) for fields in results])
    assert row.what == "r: how?"
    assert row.figure == f"{results[0][0]}:3-9; together 0.500"
    assert row.goal.startswith(expected)
    assert row.met is met
