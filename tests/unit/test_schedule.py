"""Tournaments: every pair once, nobody in two measurements at a time."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.plan.schedule import directed_rounds, evenly, tournament, tournament_rounds

NAMES = st.lists(st.text("abcdef0123", min_size=1, max_size=6), unique=True, max_size=24)


@given(NAMES)
def test_tournament(names):
    rounds = tournament(names)
    met = [frozenset(pair) for r in rounds for pair in r]
    assert sorted(map(sorted, met)) == sorted(sorted(p) for p in combinations(names, 2))
    for pairs in rounds:
        busy = [name for pair in pairs for name in pair]
        assert len(busy) == len(set(busy))
    if len(names) >= 2:
        assert len(rounds) == len(names) - 1 + len(names) % 2


@given(NAMES)
def test_directed_rounds(names):
    rounds = directed_rounds(names)
    assert sorted(pair for r in rounds for pair in r) == sorted(permutations(names, 2))
    assert len(rounds) == 2 * len(tournament(names))


def test_a_duplicate_name_is_refused():
    with pytest.raises(ValueError, match="duplicate"):
        tournament(["a", "b", "a"])


@given(st.integers(1, 50), st.integers(1, 200))
def test_evenly(count, of):
    chosen = evenly(count, of)
    assert len(chosen) == min(count, of)
    assert chosen == sorted(set(chosen))
    assert all(0 <= i < of for i in chosen)


@settings(deadline=None)
@given(st.integers(2, 40), st.data())
def test_some_rounds_are_those_of_the_whole_tournament(count, data):
    names = [f"n{i}" for i in range(count)]
    kept = data.draw(st.lists(st.integers(0, tournament_rounds(count) - 1), max_size=5))
    whole = directed_rounds(names)
    assert directed_rounds(names, kept) == [whole[2 * i + direction] for i in kept for direction in (0, 1)]


def test_the_rounds_stay_those_of_released_plans():
    """Which pairs meet in a round stands in the plans of accepted runs; worked out by hand with the circle method."""
    assert tournament(list("abcd")) == [[("a", "d"), ("b", "c")], [("a", "c"), ("d", "b")], [("a", "b"), ("c", "d")]]
    assert tournament(list("abc")) == [[("b", "c")], [("a", "c")], [("a", "b")]]


def test_a_few_rounds_of_a_large_fleet_are_not_paid_with_all_pairs():
    assert len(directed_rounds([f"n{i}" for i in range(20_000)], [0, 9_999])) == 4  # all would be 400 million pairs
