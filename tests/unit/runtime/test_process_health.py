"""Settling of the heap, and the return of its memory."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from runtime.process_health import memory_bytes, return_memory, settle_heap


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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc")
def test_unused_memory_is_returned() -> None:
    """Memory between two objects that still exist is returned, too."""
    texts = [bytes(10_000) for _ in range(4_000)]
    del texts[1:-1]
    used = memory_bytes()
    return_memory()
    assert used - memory_bytes() > 20_000_000
    assert len(texts) == 2
