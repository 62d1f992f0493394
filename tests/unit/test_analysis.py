"""Statistics, scaling and localisation."""

from __future__ import annotations

import statistics
from fractions import Fraction
from itertools import permutations
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.analysis.localise import localise
from validation.analysis.scaling import average_rate, efficiency
from validation.analysis.stats import mad, median_ranks, summarize

VALUES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=60)


@settings(deadline=None)
@given(VALUES)
def test_the_interval_encloses_the_median_and_stays_within_the_samples(values):
    s = summarize(values)
    assert min(values) <= s.low <= s.median <= s.high <= max(values)
    assert s == summarize(list(reversed(values)))
    assert s.count == len(values)
    assert s.median == statistics.median(values)
    assert s.mad == mad(values) == statistics.median(abs(v - s.median) for v in values)


def test_known_values():
    s = summarize([1, 2, 3, 4, 100])
    assert (s.median, s.mad) == (3, 1)
    assert summarize([5.0] * 10).spread == 0
    assert mad([1, 1, 2, 2, 4, 6, 9]) == 1
    with pytest.raises(ValueError, match="no samples"):
        summarize([])


@pytest.mark.parametrize("count", [1, 5, 6, 8, 9, 12, 20, 100, 1100])
def test_the_ranks_of_a_medians_interval_are_the_narrowest_that_hold_95_percent(count):
    def coverage(low, high):  # that at least `low` + 1 and at most `high` samples are below the median
        return Fraction(sum(comb(count, below) for below in range(low + 1, high + 1)), 2**count)

    low, high = median_ranks(count)
    assert low == count - 1 - high
    if count < 6:
        assert (low, high) == (0, count - 1)
    else:
        assert coverage(low, high) >= Fraction(95, 100) > coverage(low + 1, high - 1)


def test_known_ranks():
    assert [median_ranks(n) for n in (10, 12, 15, 20, 25)] == [(1, 8), (2, 9), (3, 11), (5, 14), (7, 17)]
    assert (summarize(range(1, 13)).low, summarize(range(1, 13)).high) == (3, 10)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    import random

    generator = random.Random(7)
    inside = 0
    for _ in range(300):
        s = summarize([generator.gauss(10, 1) for _ in range(25)])
        inside += s.low <= 10 <= s.high
    assert 0.90 <= inside / 300 <= 0.99


def test_scaling_reproduces_the_whitepapers_figures():
    # C4130 P100 and C4140-K, Dell whitepaper 2019: about 97 % inside the node, 92 and 90 % across two
    for one, four, eight, intra, inter in ((283, 1099, 2075, 0.97, 0.92), (626, 2425, 4500, 0.97, 0.90)):
        assert efficiency([four] * 100, [one] * 100, 4).value == pytest.approx(intra, abs=0.005)
        assert efficiency([eight] * 100, [one] * 100, 8).value == pytest.approx(inter, abs=0.005)


def test_scaling_has_an_interval_of_both_series():
    noisy = [100 + i % 20 for i in range(100)]
    e = efficiency([2 * v for v in noisy], noisy, 2)
    assert e.value == pytest.approx(1)
    assert e.low < e.value < e.high
    assert efficiency([2.0] * 100, [1.0], 2).low == 1, "what does not vary has no width"
    for many, single, ranks in (([], [1.0], 2), ([1.0], [], 2), ([1.0], [0.0], 2), ([1.0], [1.0], 0)):
        with pytest.raises(ValueError, match="scaling"):
            efficiency(many, single, ranks)


def test_a_rate_is_all_images_over_all_the_time():
    """9 of 10 steps of 100 images take a second, one ten: 1000 images in 19 s, whatever the median says."""
    stalled = [100.0] * 9 + [10.0]
    assert average_rate(stalled) == pytest.approx(1000 / 19)
    assert efficiency(stalled, [100.0] * 10, 1).value == pytest.approx(10 / 19)
    for wrong in ([], [1.0, 0.0]):
        with pytest.raises(ValueError, match="average rate"):
            average_rate(wrong)


def test_the_interval_of_scaling_covers_the_truth_about_as_often_as_it_says():
    import random

    generator, inside = random.Random(7), 0
    for _ in range(300):
        many = [190 / generator.gammavariate(25, 1 / 25) for _ in range(100)]
        single = [100 / generator.gammavariate(100, 1 / 100) for _ in range(100)]
        found = efficiency(many, single, 2)
        inside += found.low <= 0.95 <= found.high
    assert 0.91 <= inside / 300 <= 0.985


def matrix(count, bad):
    names = [f"n{i}" for i in range(count)]
    return {(a, b): bad(a, b) for a, b in permutations(names, 2)}


@pytest.mark.parametrize("count", range(2, 9))
def test_a_clean_matrix_names_nobody(count):
    assert not localise(matrix(count, lambda a, b: False))


@pytest.mark.parametrize("count", range(3, 9))
@pytest.mark.parametrize(
    ("direction", "bad"),
    [
        ("both", lambda a, b: "n1" in (a, b)),
        ("sending", lambda a, b: a == "n1"),
        ("receiving", lambda a, b: b == "n1"),
    ],
)
def test_one_sick_port_is_named_once_and_nobody_else(count, direction, bad):
    (suspect,) = localise(matrix(count, bad))
    assert (suspect.kind, suspect.subject, suspect.direction) == ("port", ("n1",), direction)
    assert len(suspect.pairs) == suspect.of == (count - 1) * (2 if direction == "both" else 1)


def test_two_sick_ports_are_both_named():
    named = localise(matrix(6, lambda a, b: {"n1", "n4"} & {a, b}))
    assert {(g.kind, g.subject) for g in named} == {("port", ("n1",)), ("port", ("n4",))}


@pytest.mark.parametrize(
    ("count", "bad", "kind", "subject"),
    [
        (4, lambda a, b: (a, b) == ("n0", "n2"), "pair", ("n0", "n2")),
        (4, lambda a, b: {a, b} == {"n0", "n2"}, "link", ("n0", "n2")),
        (2, lambda a, b: True, "link", ("n0", "n1")),
        (2, lambda a, b: a == "n1", "pair", ("n1", "n0")),
        (4, lambda a, b: True, "cluster", ()),
        (5, lambda a, b: "n2" in (a, b) and (a, b) != ("n0", "n2"), "port", ("n2",)),
    ],
)
def test_links_pairs_cluster_and_a_lucky_pair(count, bad, kind, subject):
    (suspect,) = localise(matrix(count, bad))
    assert (suspect.kind, suspect.subject) == (kind, subject)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(2, 6).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.sampled_from(list(permutations(range(n), 2)))))
    )
)
def test_every_bad_pair_is_explained_exactly_once(case):
    count, bad = case
    pairs = {(f"n{a}", f"n{b}"): (a, b) in bad for a, b in permutations(range(count), 2)}
    explained = [pair for g in localise(pairs) for pair in g.pairs]
    assert sorted(explained) == sorted(pair for pair, is_bad in pairs.items() if is_bad)


class _Watched(dict):
    """A matrix that counts how often all of it is looked through."""

    looks = 0

    def __iter__(self):
        self.looks += 1
        return super().__iter__()

    def items(self):
        self.looks += 1
        return super().items()


def test_the_matrix_of_a_fleet_is_looked_through_a_few_times_whatever_its_size():
    ends = [f"n{i:03d}/a" for i in range(120)]
    pairs = {(a, ends[(i + k) % 120]): False for i, a in enumerate(ends) for k in range(1, 9)}
    matrix = _Watched({pair: "n007/a" in pair for pair in pairs})
    (found,) = localise(matrix)
    assert (found.kind, found.subject, found.direction, found.of) == ("port", ("n007/a",), "both", 16)
    assert matrix.looks < 10
