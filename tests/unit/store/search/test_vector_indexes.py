"""Vectors that may lie outside of an index, and the memory of a build."""

from __future__ import annotations

import pytest

from store.search.index_builders import Build, BuildLimits
from store.search.vector_indexes import allowed_tail


@pytest.mark.parametrize(
    ("indexed", "calm", "importing"),
    [
        (None, 8_000, 100_000),
        (10_000, 8_000, 100_000),
        (80_000, 20_000, 100_000),
        (1_000_000, 25_000, 250_000),
        (10_000_000, 25_000, 2_500_000),
    ],
)
def test_the_number_of_vectors_outside_is_bounded(
    indexed: int | None, calm: int, importing: int
) -> None:
    """At most 25,000 lie outside once an import has ended, however many the index has."""
    assert allowed_tail(indexed, 8_000, importing=False) == calm
    assert allowed_tail(indexed, 8_000, importing=True) == importing


@pytest.mark.parametrize(
    ("vectors", "memory", "processes"),
    [(20_000, "65536kB", "0"), (500_000, "716796kB", "2"), (5_000_000, "1048576kB", "2")],
)
def test_a_build_has_the_memory_that_its_graph_needs(
    vectors: int, memory: str, processes: str
) -> None:
    """The memory grows with the graph up to the limit; only a large one is built in parallel."""
    build = Build(1, 2, 3, dimensions=384, watermark=9, vectors=vectors)
    limits = BuildLimits(processes=2)
    assert (build.memory(limits), build.processes(limits)) == (memory, processes)
