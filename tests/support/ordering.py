"""Order of the tests of a run with several test processes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice
from typing import Protocol, TypeVar

__all__ = ["long_first"]

_LONG = ("tests/chaos/", "tests/hostile/", "tests/acceptance/")


class _Located(Protocol):
    @property
    def nodeid(self) -> str: ...


Test = TypeVar("Test", bound=_Located)


def long_first(tests: Sequence[Test], processes: int) -> list[Test]:
    """Sort so that each test process begins with its share of the long tests, by the file.

    xdist gives each process an equal part of the list, from its beginning. In the order of paths
    one process gets all the long tests, and they are what is left at the end, when the others have
    nothing to do. They also wait for half of their time, so that they fill it for each other.
    """
    long = sorted((test for test in tests if _rank(test) < len(_LONG)), key=_rank)
    short = iter([test for test in tests if _rank(test) == len(_LONG)])
    shares: list[list[Test]] = [[] for _ in range(processes)]
    for number, (_, file) in enumerate(groupby(long, key=_file)):
        shares[number % processes] += file
    ordered: list[Test] = []
    for number, share in enumerate(shares):
        size = (len(tests) - len(ordered)) // (processes - number)
        ordered += [*share, *islice(short, max(0, size - len(share)))]
    return [*ordered, *short]


def _rank(test: _Located) -> int:
    folders = (rank for rank, folder in enumerate(_LONG) if test.nodeid.startswith(folder))
    return next(folders, len(_LONG))


def _file(test: _Located) -> str:
    return test.nodeid.partition("::")[0]
