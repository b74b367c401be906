"""Settling the heap."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from runtime.process_health import settle_heap


@pytest.fixture
def restored() -> Iterator[None]:
    """The collector as it was before."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Cyclic:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.usefixtures("restored")
def test_what_is_loaded_is_left_alone_and_new_cycles_are_still_collected() -> None:
    """The old are frozen; a cycle that is made later goes as soon as many objects came after it."""
    settle_heap()
    assert gc.get_freeze_count() > 1_000
    seen = weakref.ref(Cyclic())
    assert seen() is not None
    kept: list[list[int]] = [[number] for number in range(2 * gc.get_threshold()[0])]
    assert seen() is None, f"collected by itself, after {len(kept):,} new objects"
