"""Names that are drawn from sources, to be asked for."""

from __future__ import annotations

from bench.repositories import NamedDefinition, definitions_in, names_of

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
