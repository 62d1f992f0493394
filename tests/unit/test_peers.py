"""Who is odd in a group of equals, by the group's own spread."""

from __future__ import annotations

import random

import pytest

from validation.analysis.peers import LEAST_APART, odd_ones


def group(count, sigma, seed, **changed):
    generator = random.Random(seed)
    values = {f"n{i}": 400 * (1 + generator.gauss(0, sigma)) for i in range(count)}
    return values | {name: values[name] * share for name, share in changed.items()}


def test_equals_are_not_odd_whatever_their_spread_and_number():
    blamed = total = 0
    for seed in range(400):
        for count in (4, 5, 6, 8, 16, 64):
            found = odd_ones(group(count, (0.002, 0.01, 0.03, 0.1)[seed % 4], seed * 31 + count))
            total += 1
            blamed += bool(found)
    assert total == 2400
    assert blamed <= 3


@pytest.mark.parametrize(
    ("count", "sigma", "lost"), [(4, 0.002, 0.4), (8, 0.005, 0.3), (32, 0.01, 0.15), (200, 0.02, 0.2)]
)
@pytest.mark.parametrize("lower_is_better", [False, True])
def test_one_that_is_far_off_is_named_with_its_distance(count, sigma, lost, lower_is_better):
    named = 0
    for seed in range(50):
        found = odd_ones(group(count, sigma, seed, n2=1 + lost if lower_is_better else 1 - lost), lower_is_better)
        assert {o.name for o in found} <= {"n2"}
        named += bool(found) and found[0].worse
    assert named >= 40


def test_two_at_once_do_not_hide_each_other_and_the_worse_comes_first():
    found = odd_ones(group(9, 0.004, 1, n3=0.8, n5=0.7))
    assert [o.name for o in found] == ["n5", "n3"]
    assert all(o.worse for o in found)
    assert "below the median of its peers" in found[0].words("Gbit/s")


def test_a_better_one_is_told_and_is_not_worse():
    (odd,) = odd_ones(group(12, 0.004, 1, n3=1.3))
    assert not odd.worse
    assert odd.apart == pytest.approx(0.3, abs=0.03)


def test_equal_values_and_one_that_is_hardly_apart():
    assert not odd_ones({f"n{i}": 400.0 for i in range(8)} | {"n2": 400 * (1 - LEAST_APART / 2)})
    (odd,) = odd_ones({f"n{i}": 400.0 for i in range(8)} | {"n2": 300.0})
    assert odd.name == "n2"


def test_three_have_no_odd_one_and_wrong_values_are_refused():
    assert not odd_ones({"a": 1.0, "b": 100.0, "c": 1.0})
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="positive"):
            odd_ones({"a": 1.0, "b": wrong, "c": 1.0, "d": 1.0})
