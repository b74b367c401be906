"""Order of tests for several test processes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.support.ordering import long_first


@dataclass(frozen=True)
class Test:
    __test__ = False
    nodeid: str


TESTS = [
    Test(f"{path}.py::test_{number}")
    for path, count in {
        "tests/acceptance/test_a": 3,
        "tests/acceptance/test_b": 2,
        "tests/chaos/test_c": 2,
        "tests/chaos/test_d": 1,
        "tests/unit/test_u": 32,
    }.items()
    for number in range(count)
]


@pytest.mark.parametrize("processes", [1, 2, 4, 7])
def test_each_process_begins_with_its_share_of_the_long_files(processes: int) -> None:
    ordered = long_first(TESTS, processes)
    assert sorted(ordered, key=TESTS.index) == TESTS
    starts, start = [], 0
    for left in range(processes, 0, -1):
        starts.append(ordered[start].nodeid.partition("::")[0])
        start += (len(TESTS) - start) // left
    assert (
        starts[:4]
        == [
            "tests/chaos/test_c.py",
            "tests/chaos/test_d.py",
            "tests/acceptance/test_a.py",
            "tests/acceptance/test_b.py",
        ][:processes]
    )
    assert all("unit" in name for name in starts[4:])


def test_few_tests_are_all_kept() -> None:
    assert {test.nodeid for test in long_first(TESTS[:6], 4)} == {t.nodeid for t in TESTS[:6]}
