"""Noise of two runs: when a difference is a change, and the tables of the statistics behind it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.analysis.chance import EQUALS, chance, holm, qn, quantile
from validation.compare.noise import Shift, settled, shift_of_intervals, shift_of_samples


def test_noise_is_not_taken_for_a_change_and_a_change_not_for_noise():
    draw = random.Random(7)
    taken = 0
    for _ in range(40):
        old, new = ([draw.gauss(100, 8) for _ in range(20)] for _ in range(2))
        taken += shift_of_samples(old, new).noise == "beyond"
    assert taken <= 4  # 5 % are expected
    old, new = [draw.gauss(100, 2) for _ in range(20)], [draw.gauss(90, 2) for _ in range(20)]
    shift = shift_of_samples(old, new)
    assert shift.noise == "beyond"
    assert shift.low < shift.change < shift.high < 0


def test_from_nothing_there_is_no_percentage():
    assert shift_of_samples([0.0] * 9, [0.0] * 9).change == 0
    assert shift_of_samples([0.0] * 9, [1.0] * 9).change is None
    assert shift_of_intervals((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)).noise == "unknown"
    assert shift_of_intervals((1.0, None, None), (2.0, 1.9, 2.1)).noise == "unknown"


@given(st.floats(0.5, 2), st.floats(0, 0.2), st.floats(0, 0.2), st.floats(0, 0.2), st.floats(0, 0.2))
def test_interval_of_the_difference_holds_the_difference(ratio, a, b, c, d):
    old, new = (10.0, 10 * (1 - a), 10 * (1 + b)), (10 * ratio, 10 * ratio * (1 - c), 10 * ratio * (1 + d))
    shift = shift_of_intervals(old, new)
    if shift.low is not None and shift.high is not None:
        assert shift.low - 1e-9 <= shift.change <= shift.high + 1e-9


def test_few_of_many_comparisons_of_an_unchanged_site_raise_an_alarm():
    """Twelve figures of which each has a level of its own in each run: at most one comparison in fifty, where the
    intervals of single figures raise an alarm in nearly all."""
    draw = random.Random(5)
    by_intervals = corrected = 0
    for _ in range(100):
        shifts = []
        for _ in range(12):
            levels = [40 * (1 + draw.gauss(0, 0.03)) for _ in range(2)]
            old, new = ([level * (1 + draw.gauss(0, 0.02)) for _ in range(12)] for level in levels)
            shifts.append(("equals", shift_of_samples(old, new)))
        by_intervals += any(s.noise == "beyond" for _, s in shifts)
        corrected += any(s.noise == "beyond" for s in settled(shifts))
    assert by_intervals > 90
    assert corrected <= 2


def test_holm_corrects_as_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_scatter_of_equals_is_a_standard_deviation_and_bears_half_of_them_elsewhere():
    draw = random.Random(3)
    for count in (EQUALS, 7, 8, 9, 12, 41):
        found = [qn([draw.gauss(5, 2) for _ in range(count)]) for _ in range(400)]
        assert sum(found) / len(found) == pytest.approx(2, rel=0.1), count
    assert qn([draw.gauss(0, 0.01) for _ in range(6)] + [draw.gauss(-0.9, 0.01) for _ in range(6)]) < 0.03
    with pytest.raises(ValueError, match="6 do"):
        qn([1.0] * (EQUALS - 1))


@pytest.mark.parametrize(
    ("t", "freedom", "p"), [(2.776, 4, 0.05), (4.604, 4, 0.01), (3.169, 10, 0.01), (2.576, 1e6, 0.01)]
)
def test_chance_of_a_t_is_that_of_the_tables(t, freedom, p):
    assert chance(t, freedom) == chance(-t, freedom) == pytest.approx(p, rel=0.06)


@pytest.mark.parametrize(("one_sided", "freedom", "t"), [(0.05, 4, 2.132), (0.01, 10, 2.764), (0.0005, 24, 3.745)])
def test_quantile_of_t_is_that_of_the_tables(one_sided, freedom, t):
    assert quantile(one_sided, freedom) == pytest.approx(t, rel=0.02)


def test_what_was_not_tested_is_left_as_it_was():
    exact, few = Shift(-0.83, None, None, "beyond"), Shift(0.5, None, None, "unknown")
    assert settled([("a", exact), ("b", few)]) == [exact, few]
    assert settled([]) == []
