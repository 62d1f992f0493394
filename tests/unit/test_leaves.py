"""A leaf switch, its uplinks and the way between two of them are one finding each, and none of their ports is named."""

from __future__ import annotations

import pytest

from tests.support.site import around, judged, lab, node, plan_of, result
from validation.model import Topology


def site(*leaves, each=3):
    """A lab whose nodes gpu1 and on have their ports at these leaf switches, so many at each."""
    named = [name for name in leaves for _ in range(each)]
    nodes = tuple(node(f"gpu{i}", i, port={"leaf": name}) for i, name in enumerate(named, 1))
    return Topology(site="s", lab_link=lab().lab_link, nodes=nodes)


def found(topology, bad, dead=False):
    """Findings by subject, where those pairs are slow, or dead, for whose leaf switches and nodes `bad` holds."""
    leaf = {n.name: n.ports[0].leaf for n in topology.nodes}

    def one(m):
        if m.kind != "tcp-bandwidth" or not bad(leaf[m.nodes[0]], leaf[m.nodes[1]], *m.nodes):
            return None
        if dead:
            return result(m, status="failed", error="no route to host")
        return result(m, around(0.1, 12, "Gbit/s", "tcp_bandwidth_gbps", seed=m.id))

    return {f.subject: f for f in judged(one, topology, plan_of(topology, ("transport",))).findings}


@pytest.mark.parametrize("dead", [False, True])
def test_a_leaf_switch_whose_every_pair_is_bad(dead):
    (told,) = found(site("a", "b", "c"), lambda one, other, *nodes: "b" in (one, other), dead).items()
    assert told[0] == "cluster, leaf b"
    assert "all 42 " in told[1].text  # 6 inside, 18 to each of two others
    assert "leaf switch b" in told[1].text
    assert "share" in told[1].remedy
    assert told[1].confidence == 0.95


@pytest.mark.parametrize("dead", [False, True])
def test_the_way_of_a_leaf_switch_to_the_others(dead):
    (told,) = found(site("a", "b", "c"), lambda one, other, *nodes: one != other and "b" in (one, other), dead).items()
    assert told[0] == "cluster, uplinks of leaf b"
    assert "all 36 " in told[1].text


def test_the_way_between_two_where_there_are_two_and_where_there_are_more():
    for leaves in (("a", "b"), ("a", "b", "c")):
        assert list(found(site(*leaves), lambda one, other, *nodes: {one, other} == {"a", "b"})) == [
            "cluster, leaf a to leaf b"
        ]


def test_all_ways_between_them():
    assert list(found(site("a", "b", "c"), lambda one, other, *nodes: one != other)) == ["cluster, leaf switches"]


def test_two_leaf_switches_of_four():
    told = found(site("a", "b", "c", "d"), lambda one, other, *nodes: bool({"b", "d"} & {one, other}))
    assert list(told) == ["cluster, leaf b", "cluster, leaf d"]


def test_a_port_of_another_leaf_switch_is_named_besides():
    told = found(site("a", "b", "c"), lambda one, other, *nodes: "b" in (one, other) or "gpu1" in nodes)
    assert set(told) == {"cluster, leaf b", "gpu1/fab0"}


@pytest.mark.parametrize("dead", [False, True])
def test_what_ports_explain_is_no_leaf_switch(dead):
    assert list(found(site("a", "b"), lambda one, other, *nodes: "gpu1" in nodes, dead)) in (["gpu1/fab0"], ["gpu1"])
    one_port_each = site("a", "b", "c", "d", each=1)
    assert list(found(one_port_each, lambda one, other, *nodes: "b" in (one, other))) == ["gpu2/fab0"]
    # a single pair across them is fine
    told = found(site("a", "b"), lambda one, other, *nodes: one != other and set(nodes) != {"gpu1", "gpu4"})
    assert not [name for name in told if "leaf" in name]


def test_without_declared_leaf_switches_and_where_all_is_bad_nothing_is_said_of_them():
    assert list(found(site("a", "b"), lambda *any: True)) == ["cluster"]
    undeclared = lab(tuple(f"gpu{i}" for i in range(1, 7)))
    assert not [
        name for name in found(undeclared, lambda one, other, a, b: (a < "gpu4") != (b < "gpu4")) if "leaf" in name
    ]
