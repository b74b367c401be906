"""Settling of the heap."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from runtime.process_health import settle_heap


@pytest.fixture
def restored() -> Iterator[None]:
    """Restore the garbage collector."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Cyclic:
    """Object that refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.usefixtures("restored")
def test_what_is_loaded_is_left_alone_and_new_cycles_are_still_collected() -> None:
    """Existing objects are frozen, and later cycles are still collected."""
    settle_heap()
    assert gc.get_freeze_count() > 1_000
    seen = weakref.ref(Cyclic())
    assert seen() is not None
    kept: list[list[int]] = [[number] for number in range(2 * gc.get_threshold()[0])]
    assert seen() is None, f"collected by itself, after {len(kept):,} new objects"
