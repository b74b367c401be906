"""Slots of a Redis Cluster: the slot of a command, and the node of a slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from redis.crc import key_slot

from runtime.errors import ConfigurationError

__all__ = [
    "READS",
    "SCRIPT_LOAD",
    "STREAMS",
    "Address",
    "SlotMap",
    "slot_of",
    "slot_of_command",
    "streams_of",
]

SCRIPT_LOAD = "SCRIPT LOAD"
READS = frozenset({"XREAD", "XREADGROUP"})
STREAMS = b"STREAMS"

_SLOTS = 16_384
_SCRIPT_CALLS = {"EVAL", "EVALSHA"}
_ON_ANY_NODE = {"ACL WHOAMI", "INFO", "PING", "SELECT", "TIME", SCRIPT_LOAD}


class Address(NamedTuple):
    """Address of a node, as the cluster announces it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class SlotMap:
    """Owner of each slot, as far as it is known."""

    def __init__(self, seeds: Iterable[Address]) -> None:
        self._seeds = list(seeds)
        self._turn = -1
        self._owners: list[Address | None] = [None] * _SLOTS
        self.primaries: list[Address] = []
        self.replicas: list[Address] = []

    def owner(self, slot: int) -> Address | None:
        """Return the primary that has a slot."""
        return self._owners[slot]

    def move(self, slot: int, owner: Address) -> None:
        """Note that another node has a slot."""
        self._owners[slot] = owner

    def replace(self, rows: Sequence[Any], host: str) -> None:
        """Take over a reply of CLUSTER SLOTS; nodes without a host have that of its sender."""
        owners: list[Address | None] = [None] * _SLOTS
        primaries, replicas = set[Address](), set[Address]()
        for start, end, primary, *others in rows:
            owner = _announced(primary, host)
            owners[start : end + 1] = [owner] * (end + 1 - start)
            primaries.add(owner)
            replicas.update(_announced(other, host) for other in others)
        self._owners = owners
        self.primaries, self.replicas = sorted(primaries), sorted(replicas)

    def sources(self, last: Address | None) -> list[Address]:
        """Return all nodes to ask for the map; ``last`` did not answer a moment ago.

        Each call begins with another node, since one may be cut off from the others.
        """
        nodes = list(dict.fromkeys([*self.primaries, *self.replicas, *self._seeds]))
        self._turn = (self._turn + 1) % len(nodes)
        nodes = nodes[self._turn :] + nodes[: self._turn]
        return sorted(nodes, key=lambda node: node == last)


def slot_of(key: Any) -> int:
    """Return the slot of a key."""
    return key_slot(key if isinstance(key, bytes) else str(key).encode())


def slot_of_command(args: Sequence[Any]) -> int | None:
    """Return the slot of a command's first key; None if it may run on any node.

    The pattern of a SCAN counts as a key: all keys that match have its hash tag.
    """
    name = args[0]
    if name in _ON_ANY_NODE:
        return None
    if name == "SCAN":
        return slot_of(args[args.index(b"MATCH") + 1]) if b"MATCH" in args else None
    if name in READS:
        return slot_of(streams_of(args)[0])
    at = 3 if name in _SCRIPT_CALLS else 1
    if len(args) <= at:
        raise ConfigurationError(f"{name} has no key, so no node of the cluster can be chosen")
    return slot_of(args[at])


def streams_of(args: Sequence[Any]) -> Sequence[Any]:
    """Return the keys of a read, which are before as many entry ids."""
    rest = args[args.index(STREAMS) + 1 :]
    return rest[: len(rest) // 2]


def _announced(node: Sequence[Any], host: str) -> Address:
    return Address(node[0].decode() if node[0] else host, int(node[1]))
