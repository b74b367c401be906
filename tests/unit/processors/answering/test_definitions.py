"""Questions that are one name: the name in them, and the promotion of its definitions."""

from __future__ import annotations

import pytest

from processors.answering.definitions import (
    DEFINITION_BONUS,
    FILE_BONUS,
    Name,
    Promotion,
    names_in,
    promotions,
)
from store.types import NamedChunk


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("TypeAdapter", Name((), "TypeAdapter")),
        (" url_for ", Name((), "url_for")),
        ("jsonify", Name((), "jsonify")),
        ("Session.send", Name(("Session",), "send")),
        ("asyncio.Queue.get()", Name(("asyncio", "Queue"), "get")),
        ("std::vector", Name(("std",), "vector")),
        ("Client#call", Name(("Client",), "call")),
        ("send(request)", Name((), "send")),
        ("`url_for`", Name((), "url_for")),
        ("class Client", Name((), "Client")),
        ("@route", Name((), "route")),
        ("Client?", Name((), "Client")),
    ],
)
def test_a_name_is_recognised(question: str, name: Name) -> None:
    """Names are recognised with qualifiers, brackets, quotes and the keyword of a definition."""
    assert names_in(question) == (name,)


@pytest.mark.parametrize(
    "question",
    [
        *("how does TypeAdapter work", "read TypeAdapter", "--collect-only", "a, b", "", "the"),
        *("A_A B_B C_C D_D E_E", "TypeAdapter --collect-only"),
        *("https://host.example/a", "42", "x", "read the file", "type error"),
    ],
)
def test_other_questions_are_not_names(question: str) -> None:
    """A question of several words, an option, a number or an address is searched as before."""
    assert names_in(question) == ()


def test_a_question_may_consist_of_several_names() -> None:
    """Up to four names are recognised if each has the form of code."""
    assert names_in("item.obj TestCase send() tmp_path") == (
        Name(("item",), "obj"),
        Name((), "TestCase"),
        Name((), "send"),
        Name((), "tmp_path"),
    )


def chunk(
    content: str | None = "def send(self):\n    pass",
    *,
    uri: str = "src/client.py",
    symbol: str | None = None,
    kind: str = "code",
    line: int = 1,
) -> NamedChunk:
    return NamedChunk(uri, kind, symbol, line, content)


def bonuses(question: str, *chunks: NamedChunk) -> list[float]:
    names = names_in(question)
    assert names
    promoted = promotions(names, dict(enumerate(chunks)))
    return [promoted[n].bonus if n in promoted else 0.0 for n in range(len(chunks))]


def test_a_definition_and_the_file_of_the_name_are_promoted() -> None:
    """Both add up; a chunk that only mentions the name gets nothing."""
    defining = chunk("class Client:\n    pass", uri="src/Client.py", symbol="Client")
    mentioning, beside = chunk(None), chunk(None, uri="src/Client.py")
    assert promotions([Name((), "Client")], {1: defining, 2: mentioning, 3: beside}) == {
        1: Promotion(DEFINITION_BONUS + FILE_BONUS, "Client"),
        3: Promotion(FILE_BONUS, None),
    }


@pytest.mark.parametrize(
    ("question", "better", "worse"),
    [
        ("send", chunk(), chunk(uri="tests/test_client.py")),
        ("send", chunk(), chunk(uri="src/client_test.go")),
        ("send", chunk(), chunk(uri="src/client.pyi")),
        ("send", chunk(), chunk("@overload\ndef send(self): ...")),
        ("send", chunk(), chunk("def Send(self):\n    pass")),
        ("Session.send", chunk(symbol="Session.send"), chunk(symbol="Client.send")),
        ("client.send", chunk(), chunk(uri="src/session.py")),
        ("send", chunk(symbol="send", line=1), chunk(symbol="send", line=40)),
        ("send", chunk(), chunk(kind="text")),
    ],
)
def test_the_best_of_several_definitions_comes_first(
    question: str, better: NamedChunk, worse: NamedChunk
) -> None:
    """An implementation, its beginning, its case and its qualifiers take precedence."""
    worse_bonus, better_bonus = bonuses(question, worse, better)
    assert better_bonus == pytest.approx(DEFINITION_BONUS)
    assert worse_bonus < better_bonus


def test_a_question_for_a_test_finds_the_test() -> None:
    """A test keeps its bonus if the question names one."""
    test = chunk("def test_send():\n    pass", uri="tests/test_client.py")
    assert bonuses("test_send", test) == [DEFINITION_BONUS]


def test_a_package_is_the_file_of_its_name() -> None:
    """The folder gives the name of ``__init__.py``, ``index.js`` and ``mod.rs``."""
    files = "a/client/__init__.py", "a/client/index.js", "client/mod.rs", "a/client/other.py"
    expected = [FILE_BONUS] * 3 + [0.0]
    assert bonuses("client", *(chunk(None, uri=uri) for uri in files)) == expected


def test_each_of_several_names_counts_for_its_share() -> None:
    """A chunk that defines one of two names gets half of the bonus, one that defines both all."""
    both = chunk("class Foo:\n    def send_all(self):\n        pass", symbol="Foo")
    first = chunk("class Foo:\n    pass", symbol="Foo")
    promoted = promotions(names_in("Foo send_all"), {1: both, 2: first})
    assert promoted[1] == Promotion(DEFINITION_BONUS, "Foo, send_all")
    assert promoted[2] == Promotion(DEFINITION_BONUS / 4, "Foo")


def test_the_owner_stands_for_a_name_that_nothing_defines() -> None:
    """``Client.missing`` leads to the definition of ``Client``."""
    owner = chunk("class Client:\n    pass", symbol="Client")
    assert bonuses("Client.missing", owner, chunk()) == [DEFINITION_BONUS, 0.0]
    assert bonuses("Client.send", owner, chunk(symbol="Client.send"))[0] == 0.0
