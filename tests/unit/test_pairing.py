"""Pairs of fabric ports of sites of many sizes: who meets whom, nobody twice in a round, what is covered and said."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.model.base import Endpoint
from validation.model.coverage import percent
from validation.plan.pairing import ALL_PAIRS_PORTS, BY_LEAF_PORTS, MOST_ROUNDS, SAMPLED_ROUNDS, End, pair_up


def ends(nodes: int, leaf: int = 0, rails: int = 1, flat: bool = False, hosts: int = 0) -> list[End]:
    """`leaf`: ports on one leaf switch, 0 where none is declared; `flat`: all rails in one network; `hosts`: so many
    nodes are virtual machines of one host."""
    return [
        End(
            Endpoint(node=f"n{i}", port=f"fab{rail}"),
            f"host{i // hosts}" if hosts else f"n{i}",
            "net" if flat else f"net{rail}",
            f"leaf{i // leaf}-{rail}" if leaf else None,
        )
        for i in range(nodes)
        for rail in range(rails)
    ]


def looked_at(given: list[End]):
    """The pairing, after what holds of every one was looked at: pairs that are any, nobody twice, both directions."""
    found = pair_up(given, "fabric ports")
    of = {end.at: end for end in given}
    for one in found.rounds:
        assert one
        busy = [end.node for pair in one for end in pair]
        assert len(busy) == len(set(busy))  # no node, and so no port, twice
        for a, b in one:
            assert of[a].network == of[b].network
            assert of[a].apart != of[b].apart
    directed = Counter(pair for one in found.rounds for pair in one)
    assert set(directed) == {(b, a) for a, b in directed}
    for one, back in zip(found.rounds[::2], found.rounds[1::2], strict=True):
        assert {(b, a) for a, b in one} == set(back)
    pairs = {frozenset(pair) for pair in directed}
    coverage = found.coverage
    assert coverage.pairs == len(pairs)
    assert coverage.ports == len(given)
    assert coverage.ports_measured == len({end for pair in pairs for end in pair})
    return found, pairs, directed


SITES = st.builds(
    ends,
    nodes=st.integers(0, 150),
    leaf=st.sampled_from([0, 1, 3, 16, 20, 64, 70]),
    rails=st.sampled_from([1, 1, 2, 3]),
    flat=st.booleans(),
    hosts=st.sampled_from([0, 0, 0, 2, 5]),
)


@settings(deadline=None, max_examples=60)
@given(SITES)
def test_sites_of_any_size(given):
    found, _, directed = looked_at(given)
    coverage = found.coverage
    possible = sum(a.network == b.network and a.apart != b.apart for a, b in combinations(given, 2))
    assert coverage.pairs_possible == possible
    lonely = [e for e in given if not any(o.network == e.network and o.apart != e.apart for o in given)]
    assert coverage.ports_measured == len(given) - len(lonely)  # whoever has somebody to meet is met
    if len(given) <= ALL_PAIRS_PORTS:
        assert coverage.method == "all pairs"
        assert coverage.whole
        assert set(directed.values()) <= {1}
    leaves = {
        frozenset((a.leaf, b.leaf))
        for a, b in combinations(given, 2)
        if a.network == b.network and a.leaf and b.leaf and a.leaf != b.leaf
    }
    assert coverage.leaf_pairs_possible == len(leaves)


@pytest.mark.parametrize("nodes", [65, 97, 129, 1000, BY_LEAF_PORTS + 8])
@pytest.mark.parametrize("leaf", [8, 32, 40])
def test_every_port_and_every_pair_of_leaf_switches_is_met(nodes, leaf):
    found, pairs, directed = looked_at(ends(nodes, leaf))
    coverage = found.coverage
    assert coverage.ports_measured == nodes
    assert coverage.leaf_pairs == coverage.leaf_pairs_possible > 0
    assert (coverage.escape_port, coverage.escape_leaves) == (0, 0)
    assert coverage.escape_uplink is not None
    assert 0 < coverage.escape_uplink < 0.03  # of leaf switches of one size 0.0025
    assert set(directed.values()) == {1}
    partners = Counter(end for pair in pairs for end in pair)
    assert min(partners.values()) >= 3
    assert coverage.method == ("by leaf" if nodes <= BY_LEAF_PORTS else "sampled")
    if coverage.method == "by leaf":
        inside = sum(n * (n - 1) // 2 for n in Counter(i // leaf for i in range(nodes)).values())
        of = {end.at: end.leaf for end in ends(nodes, leaf)}
        assert sum(len({of[end] for end in pair}) == 1 for pair in pairs) == inside


def test_a_rail_without_leaf_switches_is_sampled_evenly():
    found, pairs, _ = looked_at(ends(201))
    assert found.coverage.method == "sampled"
    assert found.coverage.leaf_pairs_possible == 0
    assert found.coverage.escape_leaves is None
    assert found.coverage.escape_uplink is None
    partners = Counter(end for pair in pairs for end in pair)
    assert set(partners.values()) <= {SAMPLED_ROUNDS - 1, SAMPLED_ROUNDS}  # of an odd number one rests in each round
    assert found.coverage.escape_pair == 1 - len(pairs) / (201 * 200 / 2)


@pytest.mark.parametrize("flat", [True, False])
def test_above_64_ports_rails_are_measured_one_after_another(flat):
    found, pairs, _ = looked_at(ends(12, rails=8, flat=flat))
    assert found.coverage.method == "by rail"
    assert len(pairs) == 8 * 66
    assert all(len({end.port for end in pair}) == 1 for pair in pairs)
    assert found.coverage.pairs_possible == (66 * 64 if flat else 66 * 8)
    assert found.coverage.whole is not flat  # in one network a port could meet the others' other rails too


def test_rails_that_would_take_too_long_are_sampled():
    """64 nodes with 8 rails: all pairs of each rail would be 504 rounds, and of each leaf switch 31 and more."""
    found, _, _ = looked_at(ends(64, leaf=32, rails=8))
    assert found.coverage.method == "sampled"
    assert len(found.rounds) == 2 * 8 * 8
    assert found.coverage.leaf_pairs == found.coverage.leaf_pairs_possible == 8
    fewer, _, _ = looked_at(ends(64, leaf=16, rails=5))
    assert fewer.coverage.method == "sampled"
    one, _, _ = looked_at(ends(64, leaf=32, rails=2))
    assert one.coverage.method == "by rail"
    assert len(one.rounds) == 2 * MOST_ROUNDS


def test_rails_that_differ_are_each_planned_for_themselves():
    """Storage nodes on the first rail alone: what holds of one rail is not taken for the others."""
    given = [*ends(70, rails=2), *(End(Endpoint(node=f"s{i}", port="fab0"), f"s{i}", "net0") for i in range(9))]
    found, _, _ = looked_at(given)
    assert found.coverage.ports_measured == 149


def test_virtual_machines_of_one_host_are_no_pair_but_all_are_met():
    found, pairs, _ = looked_at(ends(90, hosts=30))
    assert found.coverage.ports_measured == 90
    assert all(len({int(e.node[1:]) // 30 for e in pair}) == 2 for pair in pairs)
    crowd, pairs, _ = looked_at(ends(70, hosts=69))  # all but one on one host: everybody meets that one
    assert crowd.coverage.ports_measured == 70
    assert len(pairs) == 69
    lonely, _, _ = looked_at(ends(70, hosts=70))
    assert not lonely.rounds
    assert lonely.coverage.escape_port == 1


def test_a_port_that_has_nobody_to_meet_is_named_and_escapes():
    alone = End(Endpoint(node="far", port="fab0"), "far", "elsewhere")
    found, _, _ = looked_at([*ends(70), alone])
    assert found.strangers == ("far/fab0: no other port in its subnet",)
    assert found.coverage.escape_port == pytest.approx(1 / 71)
    assert "70 of 71 ports" in found.coverage.text
    assert "1.4 % between a port and its leaf switch" in found.coverage.text


def test_leaf_switches_of_uneven_sizes_take_further_rounds():
    given = [*ends(160, 16), End(Endpoint(node="x", port="f"), "x", "net0", "small")]
    found, pairs, _ = looked_at(given)
    assert found.coverage.leaf_pairs == found.coverage.leaf_pairs_possible == 55
    assert sum(any(end.node == "x" for end in pair) for pair in pairs) >= 10  # one port meets ten leaf switches


def test_many_leaf_switches_are_met_at_once():
    """129 switches of 8 ports meet 128 others, 8 at a time and each at rest in one turn: 17 rounds, after 2 inside."""
    found, _, _ = looked_at(ends(1024 + 8, 8))
    assert found.coverage.leaf_pairs == found.coverage.leaf_pairs_possible == 129 * 128 / 2
    assert len(found.rounds) == 2 * (2 + 17)


def test_the_chance_of_a_bad_uplink_is_that_of_flows_that_fall_on_it():
    """Drawn: each flow that leaves a leaf switch takes one of its uplinks; how often is one of them never taken?"""
    import random

    given = ends(96, 16)
    found, _, directed = looked_at(given)
    leaf = {end.at: end.leaf for end in given}
    draw = random.Random(1)
    free = trials = 0
    for _ in range(60):
        taken = defaultdict(set)
        for a, b in directed:
            if leaf[a] != leaf[b]:
                taken[leaf[a]].add(draw.randrange(16))
        trials += 6 * 16
        free += sum(16 - len(uplinks) for uplinks in taken.values())
    assert found.coverage.escape_uplink is not None
    assert free / trials == pytest.approx(found.coverage.escape_uplink, rel=0.6)  # 0.2 % of 5,760: a dozen


def test_the_same_site_has_the_same_pairs():
    assert pair_up(ends(300, 20), "x") == pair_up(ends(300, 20), "x")


def test_four_thousand_ports_take_a_moment():
    began = time.process_time()
    found = pair_up(ends(4000, 40), "fabric ports")
    assert found.coverage.leaf_pairs == found.coverage.leaf_pairs_possible == 100 * 99 / 2
    assert time.process_time() - began < 10  # measured: 0.3 s, and of 10,000 ports 0.8 s


@pytest.mark.parametrize(
    ("chance", "words"),
    [(0, "0 %"), (1, "100 %"), (1e-9, "below 0.1 %"), (0.0025, "0.25 %"), (0.5, "50.0 %"), (0.9999, "above 99.9 %")],
)
def test_chances_in_words(chance, words):
    assert percent(chance) == words
