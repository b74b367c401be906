"""Tally of hostile inputs and their results, printed when these tests run by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.tally import Record

_PROPERTY = "hostile"


@pytest.fixture
def record(record_property: Callable[[str, object], None]) -> Record:
    """Record a kind of input with the number of each result."""

    def recorded(what: str, found: Counter[str]) -> None:
        parts = ", ".join(f"{count:,} {name}" for name, count in found.most_common())
        record_property(_PROPERTY, f"{found.total():,} {what}: {parts}")

    return recorded


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tally of the run."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    lines = [
        f"{report.outcome}: {value}"
        for report in reports
        for name, value in report.user_properties
        if name == _PROPERTY and report.when == "call"
    ]
    if lines:
        terminalreporter.section("hostile input")
        terminalreporter.write_line("\n".join(lines))
