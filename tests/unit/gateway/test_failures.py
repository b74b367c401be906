"""Reports of errors in one line."""

from __future__ import annotations

from gateway.failures import one_line
from runtime.errors import Unavailable


def test_a_long_message_does_not_displace_its_remedy() -> None:
    line = one_line(Unavailable("a long reason " * 100, "check the model's name"))
    assert line.startswith("a long reason a long reason")
    assert line.endswith("; check the model's name")
    assert len(line) < 600


def test_a_defect_names_the_way_to_its_traceback() -> None:
    assert one_line(ValueError("two\nlines")).startswith("unexpected ValueError: two lines; ")
    assert one_line(ValueError()).startswith("unexpected ValueError: no message; ")
