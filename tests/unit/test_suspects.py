"""From values of pairs to the part at fault: sites of many shapes, with noise; clean ones name nobody."""

from __future__ import annotations

import math

import pytest

from tests.support.matrices import Noise, Shape, Site
from validation.analysis.suspects import Place, suspects
from validation.analysis.suspects_again import SINGLE_AGAIN, confirmed, partners_for, settled

NOISES = {
    "quiet": Noise(0.002, 0.0005),
    "usual": Noise(0.01),
    "loud": Noise(0.03, 0.005),
    "heavy": Noise(0.02, 0.003, heavy=True),
    "disturbed": Noise(0.01, 0.002, odd=0.01),
    "both": Noise(0.01, 0.002, heavy=True, odd=0.02),
}
SHAPES = {
    "2": Shape(2),
    "3": Shape(3),
    "4": Shape(4),
    "8": Shape(8),
    "16": Shape(16),
    "4x4": Shape(4, 4),
    "8x8": Shape(8, 8),
    "16 under 4": Shape(16, 1, 4),
    "12x2 under 3": Shape(12, 2, 3),
    "64 sampled": Shape(64, 1, 8, 8),
}


def named(site, seed, lower_is_better=False, worst=None):
    """What is found and stands when it is measured again."""
    values = site.measured(seed, lower_is_better=lower_is_better)
    found = suspects(values, site.shape.places(), lower_is_better=lower_is_better, worst=worst)
    if not found:
        return []
    pairs = tuple(pair for g in found for pair in partners_for(g, found, values))
    again = [site.measured(seed, pairs, lower_is_better, turn) for turn in range(SINGLE_AGAIN)]
    return confirmed(found, *again, lower_is_better=lower_is_better)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_clean_site_names_nobody(shape, noise):
    site = Site(SHAPES[shape], NOISES[noise], across=0.9 if SHAPES[shape].leaves else 1.0)
    times = 20 if len(site.measured(0)) < 300 else 3
    for seed in range(times):
        assert not named(site, seed, lower_is_better=bool(seed % 2))


FAULTS = [
    ("3", ("port", ("n1/fab0",), "both")),
    ("4", ("port", ("n1/fab0",), "both")),
    ("4", ("port", ("n1/fab0",), "sending")),
    ("4", ("port", ("n1/fab0",), "receiving")),
    ("8", ("port", ("n5/fab0",), "both")),
    ("16", ("port", ("n5/fab0",), "sending")),
    ("16", ("link", ("n5/fab0", "n7/fab0"), "both")),
    ("16", ("pair", ("n5/fab0", "n7/fab0"), "sending")),
    ("4x4", ("port", ("n2/fab1",), "both")),
    ("4x4", ("node", ("n2",), "both")),
    ("4x4", ("node", ("n2",), "receiving")),
    ("4x4", ("rail", ("rail2",), "both")),
    ("8x8", ("port", ("n2/fab1",), "receiving")),
    ("8x8", ("node", ("n7",), "sending")),
    ("8x8", ("rail", ("rail2",), "both")),
    ("16 under 4", ("leaf", ("leaf1",), "both")),
    ("16 under 4", ("uplink", ("leaf1",), "both")),
    ("16 under 4", ("uplink", ("leaf1",), "sending")),
    ("16 under 4", ("leaves", ("leaf1", "leaf3"), "both")),
    ("12x2 under 3", ("node", ("n4",), "both")),
    ("64 sampled", ("port", ("n41/fab0",), "both")),
    ("64 sampled", ("uplink", ("leaf5",), "receiving")),
]


@pytest.mark.parametrize("lost", [0.15, 0.5, 0.9])
@pytest.mark.parametrize(("shape", "fault"), FAULTS)
def test_one_part_at_fault_is_named_with_its_direction_and_nobody_else(shape, fault, lost):
    site = Site(SHAPES[shape], NOISES["usual"], {fault: lost}, across=0.9 if SHAPES[shape].leaves else 1.0)
    for seed in range(2):
        for lower in (False, True):
            found = named(site, seed, lower)
            assert [(g.kind, g.subject, g.direction) for g in found] == [fault]
            assert found[0].slower == pytest.approx(1 / (1 - lost) - 1 if lower else lost, rel=0.25)
            assert found[0].confidence >= 0.7


TWO = [
    ("8", {("port", ("n1/fab0",), "both"): 0.5, ("port", ("n4/fab0",), "both"): 0.5}),
    ("8", {("port", ("n1/fab0",), "sending"): 0.5, ("port", ("n4/fab0",), "receiving"): 0.3}),
    ("16", {("port", ("n1/fab0",), "both"): 0.2, ("port", ("n4/fab0",), "both"): 0.9}),
    ("16", {("port", ("n1/fab0",), "both"): 0.4, ("link", ("n4/fab0", "n9/fab0"), "both"): 0.4}),
    ("8x8", {("node", ("n2",), "both"): 0.4, ("rail", ("rail5",), "both"): 0.3}),
    ("8x8", {("port", ("n2/fab1",), "both"): 0.4, ("port", ("n2/fab6",), "sending"): 0.3}),
    ("16 under 4", {("port", ("n1/fab0",), "both"): 0.5, ("uplink", ("leaf2",), "both"): 0.3}),
    ("64 sampled", {("port", ("n1/fab0",), "both"): 0.5, ("port", ("n33/fab0",), "both"): 0.5}),
]


@pytest.mark.parametrize(("shape", "faults"), TWO)
def test_two_at_once_are_both_named(shape, faults):
    site = Site(SHAPES[shape], NOISES["usual"], faults, across=0.9 if SHAPES[shape].leaves else 1.0)
    for seed in range(5):
        assert {(g.kind, g.subject, g.direction) for g in named(site, seed)} == set(faults)


def test_two_of_four_are_bad_and_the_two_good_ones_are_the_measure():
    """10 of 12 pairs are slow, so that the middle of all is a slow pair's."""
    faults = {("port", ("n1/fab0",), "both"): 0.5, ("port", ("n2/fab0",), "both"): 0.5}
    for seed in range(10):
        found = named(Site(SHAPES["4"], NOISES["quiet"], faults), seed)
        assert {g.subject for g in found} == {("n1/fab0",), ("n2/fab0",)}


def test_what_all_share_is_said_to_be_shared_and_nobody_is_named():
    site = Site(SHAPES["8"], NOISES["usual"], rate=200)
    (found,) = suspects(site.measured(1), site.shape.places(), worst=351.0)
    assert (found.kind, found.subject) == ("shared", ())
    assert found.slower == pytest.approx(1 - 200 / 351, rel=0.05)
    assert "share" in found.words
    assert not suspects(Site(SHAPES["8"]).measured(1), site.shape.places(), worst=351.0)


def test_a_shared_fault_and_a_port_with_one_of_its_own_are_both_named():
    site = Site(SHAPES["8"], NOISES["usual"], {("port", ("n3/fab0",), "both"): 0.5}, rate=200)
    assert {g.kind for g in suspects(site.measured(1), site.shape.places(), worst=351.0)} == {"shared", "port"}


@pytest.mark.parametrize("nothing", [0.0, math.inf])
def test_pairs_through_which_nothing_came(nothing):
    values = Site(SHAPES["8"], NOISES["usual"]).measured(1, lower_is_better=nothing == math.inf)
    values = {pair: nothing if "n3/fab0" in pair else value for pair, value in values.items()}
    (found,) = suspects(values, SHAPES["8"].places(), lower_is_better=nothing == math.inf)
    assert (found.kind, found.subject, found.of) == ("port", ("n3/fab0",), 14)


def test_parts_that_no_measurement_can_tell_apart_are_named_together():
    places = {f"n{n}/fab{r}": Place(f"n{n}", f"rail{r}", f"leaf{r}") for n in range(4) for r in range(4)}
    site = Site(SHAPES["4x4"], NOISES["quiet"], {("rail", ("rail2",), "both"): 0.4})
    (found,) = suspects(site.measured(3), places)
    assert found.kind == "rail"
    assert "leaf leaf2" in found.also
    assert "leaf2" in found.words


def test_what_is_slow_once_is_transient_and_what_stays_is_persistent():
    quiet = Site(SHAPES["8"], NOISES["quiet"])
    slow = Site(SHAPES["8"], NOISES["quiet"], {("port", ("n3/fab0",), "both"): 0.4})
    (found,) = suspects(slow.measured(1), slow.shape.places())
    again = partners_for(found, [found], slow.measured(1))
    assert len(again) == len({frozenset(p) for p in again}) == 4
    assert all("n3/fab0" in pair for pair in again)
    assert settled(found, slow.measured(1, tuple(again))) == "persistent"
    assert settled(found, quiet.measured(1, tuple(again))) == "transient"
    assert settled(found, {}) == "unclear"
    assert not confirmed([found], quiet.measured(1, tuple(again)))


def test_suspects_are_measured_again_with_partners_whom_nobody_suspects():
    faults = {("port", ("n1/fab0",), "both"): 0.5, ("port", ("n4/fab0",), "both"): 0.5}
    site = Site(SHAPES["8"], NOISES["quiet"], faults)
    found = suspects(site.measured(1), site.shape.places())
    for one in found:
        other = next(g for g in found if g is not one).subject[0]
        assert not any(other in pair for pair in partners_for(one, found, site.measured(1)))


def test_two_ends_alone_and_an_empty_matrix():
    places = Shape(2).places()
    assert suspects({}, places) == []
    assert suspects({("n0/fab0", "n1/fab0"): 390.0, ("n1/fab0", "n0/fab0"): 388.0}, places) == []


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_what_is_no_rate_is_refused(wrong):
    with pytest.raises(ValueError, match="neither"):
        suspects({("n0/fab0", "n1/fab0"): wrong}, Shape(2).places())


def test_a_port_without_a_place_is_refused():
    with pytest.raises(ValueError, match="no place is known of n9/fab0"):
        suspects({("n0/fab0", "n9/fab0"): 1.0}, Shape(2).places())
