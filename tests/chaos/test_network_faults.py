"""Faults of the network between publishers, workers, Redis and Postgres.

``HEADRACE_TEST_SEEDS=20`` runs as many seeds of each.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from tests.chaos.networks import Network, Networks
from tests.chaos.runs import Chaos
from tests.chaos.seeds import seeds
from tests.support.proxy import Fault, Trap, Way
from tests.support.waiting import eventually

DELAY_SECONDS = 0.02
RESETS = 4
CHANGES = 10
"""Number of changes that must be handled between two faults."""

REDIS_CUTS = [
    (Way.TO_CLIENT, b"query.requested"),
    (Way.TO_CLIENT, b"document.changed"),
    (Way.TO_SERVER, b"XREADGROUP"),
    (Way.TO_SERVER, b"XACK"),
    (Way.TO_SERVER, b"document.indexed"),
    (Way.TO_SERVER, b"query.answered"),
]
POSTGRES_CUTS = [
    (Way.TO_SERVER, b"amberword"),
    (Way.TO_SERVER, b"cobaltword"),
    (Way.TO_SERVER, b"COMMIT"),
    (Way.TO_CLIENT, b"COMMIT"),
    (Way.TO_CLIENT, b"INSERT"),
]
PUBLISHING_CUTS = [
    (Way.TO_SERVER, b"document.changed"),
    (Way.TO_SERVER, b"query.requested"),
    (Way.TO_CLIENT, b"live:0:"),
    (Way.TO_CLIENT, b"bulk:0:"),
]


@pytest.fixture
def networks(chaos: Chaos) -> Networks:
    """Factory of runs behind proxies."""
    return Networks(chaos)


@pytest.mark.parametrize("seed", seeds())
async def test_slow_links_and_resets(networks: Networks, seed: int) -> None:
    """I1 to I5 hold after slow connections and repeated resets."""
    rng = random.Random(seed)
    async with networks(seed, "slow links and resets") as network:
        await network.run.worker()
        for door in network.doors:
            door.delay(rng.uniform(0, DELAY_SECONDS))
        async with network.traffic():
            for _ in range(RESETS):
                await network.handles(rng.randint(1, CHANGES))
                rng.choice(network.doors).reset()
        await healed(network)


@pytest.mark.parametrize("seed", seeds())
async def test_messages_are_cut_in_the_middle(networks: Networks, seed: int) -> None:
    """I1 to I5 hold after requests and replies of each kind were cut or lost."""
    rng = random.Random(seed)
    async with networks(seed, "messages are cut") as network:
        await network.run.worker()
        async with network.traffic():
            await network.handles(1)
            doors = zip(network.doors, (REDIS_CUTS, POSTGRES_CUTS, PUBLISHING_CUTS), strict=True)
            traps = [
                door.trap(way, pattern, rng.choice([Fault.CUT, Fault.RESET]))
                for door, cuts in doors
                for way, pattern in cuts
            ]
            await all_struck(traps)
            await network.handles(CHANGES)
        await healed(network)


@pytest.mark.parametrize("seed", seeds())
async def test_a_partition_outlasts_the_lease(networks: Networks, seed: int) -> None:
    """I1 to I5 hold after a worker was cut off for longer than its lease."""
    rng = random.Random(seed)
    async with networks(seed, "partition") as network:
        await network.run.worker()
        await network.worker_beside()
        async with network.traffic():
            await network.handles(rng.randint(1, CHANGES))
            for door in rng.choice([network.doors[:1], network.doors[:2]]):
                door.stall()
            await network.taken_over()
            for door in network.doors:
                door.heal()
            await network.handles(CHANGES)
        await healed(network)


@pytest.mark.parametrize("seed", seeds())
async def test_a_black_hole(networks: Networks, seed: int) -> None:
    """I1 to I5 hold after connections fell silent and were replaced."""
    rng = random.Random(seed)
    async with networks(seed, "black hole") as network:
        await network.run.worker()
        async with network.traffic():
            await network.handles(rng.randint(1, CHANGES))
            doors = network.doors if seed == 0 else rng.sample(network.doors, rng.randint(1, 2))
            for door in doors:
                door.blackhole()
            await asyncio.gather(*(network.reconnects(door, 3) for door in doors))
            for door in doors:
                door.heal()
            await network.handles(CHANGES)
        await healed(network)


async def all_struck(traps: list[Trap]) -> None:
    """Wait until every trap has caught something."""
    for trap in traps:
        await eventually(partial(has_struck, trap), f"{trap} strikes", timeout=30)


def has_struck(trap: Trap) -> bool:
    return not trap.is_set


async def healed(network: Network) -> None:
    """Heal all proxies, and verify the run."""
    for door in network.doors:
        door.heal()
    await network.run.verify()
