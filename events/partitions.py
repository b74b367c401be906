"""Partitions of a deployment: their hash tags, and the number of them, which can be raised.

A number is raised in steps, so that order and idempotency hold while changes are published:

1. The stamp in Redis names the new number. Workers read all partitions; publishers still choose by
   the former number.
2. Every partition notes the new number: from then on it refuses changes of publishers that choose
   by another one. Its last entry ids are read in the same step.
3. The streams of all partitions are moved past these ids, so that later changes of a document get
   later positions, whatever partition and whatever clock they come from.
4. When the replicas have all this, the stamp says that the raise is complete, and publishers choose
   by the new number.

An event id that was published before is found in the former partition of its document.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from itertools import count

__all__ = [
    "LARGEST_PARTITIONS",
    "Raise",
    "former_numbers",
    "hash_tag",
    "slot_of",
    "spreading_number",
]

LARGEST_PARTITIONS = 256
_SLOTS = 16_384
_CELL = _SLOTS // LARGEST_PARTITIONS
_PARTITION_BITS = LARGEST_PARTITIONS.bit_length() - 1


@dataclass(frozen=True, slots=True)
class Raise:
    """A raise of the number of partitions. ``completed_ms`` (since 1970) is None until it is."""

    former: int
    completed_ms: int | None = None

    def may_concern(self, now_ms: int, remembered: timedelta) -> bool:
        """Return whether events of before the raise may still be remembered."""
        if self.completed_ms is None:
            return True
        kept = remembered + timedelta(hours=1)  # clocks differ
        return now_ms < self.completed_ms + int(kept.total_seconds() * 1000)


def hash_tag(family: str, partition: int) -> str:
    """Return the hash tag of a partition, without braces: ``document.0``, ``document.1-124``.

    The last number is the least one with which the slots of the partitions are evenly
    spread, whatever their number: each halves the widest gap between those before it.
    """
    tag = f"{family}.{partition}"
    return f"{tag}-{spreading_number(family, partition)}" if partition else tag


@lru_cache(maxsize=1024)
def spreading_number(family: str, partition: int) -> int:
    """Return the last number in the hash tag of a partition from 1 on."""
    reversed_bits = int(f"{partition:0{_PARTITION_BITS}b}"[::-1], 2)
    cell = (slot_of(f"{family}.0") // _CELL + reversed_bits) % LARGEST_PARTITIONS
    tag = f"{family}.{partition}-"
    return next(n for n in count(1) if slot_of(f"{tag}{n}") // _CELL == cell)


def slot_of(tag: str) -> int:
    """Return the slot of a hash tag in a Redis Cluster."""
    return binascii.crc_hqx(tag.encode(), 0) % _SLOTS


def former_numbers(raises: Sequence[Raise], now_ms: int, remembered: timedelta) -> list[int]:
    """Return the numbers of partitions by which remembered events may have been published."""
    return [raised.former for raised in raises if raised.may_concern(now_ms, remembered)]
