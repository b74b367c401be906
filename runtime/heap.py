"""Tuning of the collector of cyclic garbage, so that it does less work."""

from __future__ import annotations

import gc

__all__ = ["settle_heap"]

_YOUNG_OBJECTS = 10_000
_OLDER_GENERATIONS = (20, 20)
"""Some thousand objects of a batch live until it is written. With the default (700, 10, 10) each of
them is examined many times, which takes a seventh of a worker's time."""


def settle_heap(young_objects: int = _YOUNG_OBJECTS) -> None:
    """Exclude all current objects from collection; call it when everything is loaded.

    The youngest generation is examined each time it has grown by ``young_objects``. Unused memory
    is released as before; only cycles are collected a little later.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(young_objects, *_OLDER_GENERATIONS)
