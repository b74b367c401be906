"""Splitting of runs of atoms."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from processors.chunking.packing.splitter import Bounds, split, split_without_rests


def pieces(costs: list[int], bounds: Bounds, seed: int = 1) -> list[list[int]]:
    rng = random.Random(seed)
    sums = [sum(costs[:end]) for end in range(len(costs) + 1)]
    strengths = [rng.randrange(100) for _ in costs]
    ranges = list(split(sums, strengths, 0, len(costs), bounds))
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
    assert all(last == first for (_, last), (first, _) in pairwise(ranges))
    return [costs[first:last] for first, last in ranges]


@pytest.mark.parametrize("seed", range(50))
def test_pieces_fit_and_keep_their_fewest_atoms(seed: int) -> None:
    """Where atoms are small, each piece fits and has the fewest atoms or more."""
    rng = random.Random(seed)
    costs = [rng.randrange(1, 30) for _ in range(rng.randrange(8, 200))]
    result = pieces(costs, Bounds(250, 250, 24, fewest=4), seed)
    assert max(map(sum, result)) <= 250
    assert min(map(len, result)) >= 4


@pytest.mark.parametrize("atoms", [8, 9, 10, 11, 12, 13, 14, 20])
@pytest.mark.parametrize("seed", range(10))
def test_a_side_that_is_cut_again_has_atoms_for_two_pieces(atoms: int, seed: int) -> None:
    """Where four to six atoms fit, no cut leaves seven that do not."""
    result = pieces([40] * atoms, Bounds(250, 250, 24, fewest=4), seed)
    assert max(map(len, result)) <= 6
    assert min(map(len, result)) >= 4


def test_atoms_over_the_limit_stand_alone() -> None:
    """Fewest atoms are a preference; the limit is none."""
    result = pieces([10, 10, 300, 10, 10], Bounds(250, 250, 24, fewest=4))
    assert [300] in result
    assert all(sum(piece) <= 250 or len(piece) == 1 for piece in result)


def test_equal_sides_where_there_are_too_few_atoms() -> None:
    """Five atoms that do not fit together become two and three."""
    result = pieces([80] * 5, Bounds(250, 250, 24, fewest=4))
    assert sorted(map(len, result)) == [2, 3]


@pytest.mark.parametrize("seed", range(50))
def test_rests_are_joined_to_a_neighbour(seed: int) -> None:
    """No piece has too few atoms, each fits, and cuts far from a rest stay as they were."""
    rng = random.Random(seed)
    costs = [rng.randrange(8, 24) for _ in range(rng.randrange(30, 200))]
    sums = [sum(costs[:end]) for end in range(len(costs) + 1)]
    strengths = [rng.randrange(100) for _ in costs]
    bounds = Bounds(200, 200, 24, fewest=4)
    plain = list(split(sums, strengths, 0, len(costs), Bounds(200, 200, 24)))
    joined = split_without_rests(sums, strengths, bounds)
    assert [first for first, _ in joined] == [0, *(last for _, last in joined[:-1])]
    assert joined[-1][1] == len(costs)
    assert all(last - first >= 4 and sums[last] - sums[first] <= 200 for first, last in joined)
    near = {index for index, (first, last) in enumerate(plain) if last - first < 4}
    near |= {index + step for index in near for step in (-2, -1, 1, 2)}
    assert {piece for index, piece in enumerate(plain) if index not in near} <= {*joined}


def test_atoms_that_fit_nowhere_stay_alone() -> None:
    """A rest beside atoms that fill a piece is a piece, as the limit comes first."""
    bounds = Bounds(100, 100, 1, fewest=4)
    assert split_without_rests([0, 90, 100, 190], [1, 2, 3], bounds) == [(0, 2), (2, 3)]
    assert split_without_rests([0, 30], [1], bounds) == [(0, 1)]
