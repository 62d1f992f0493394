"""Tournaments: every pair once, nobody in two measurements at a time."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.schedule import directed_rounds, evenly, tournament

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
