"""Rails that fail as a whole, and parts that pass and are slower than their equals."""

from __future__ import annotations

import pytest

from tests.support.site import (
    BOM,
    around,
    hardware,
    judged,
    lab,
    node,
    plan_of,
    result,
    spoil,
)
from validation.model import Port, Topology


def railed(count=4, rails=3, **changes):
    def one(name, i):
        ports = tuple(Port(interface=f"fab{r}", address=f"10.{78 + r}.0.{i}", prefix=24) for r in range(rails))
        return node(name, i, ports=ports, bom=BOM.model_copy(update={"fabric_port_count": rails}), **changes)

    return Topology(site="s", lab_link=lab().lab_link, nodes=tuple(one(f"gpu{i}", i) for i in range(1, count + 1)))


def slow(topology, which, value=0.1):
    def one(m):
        if m.kind != "tcp-bandwidth" or not which(*m.endpoints):
            return None
        return result(m, around(value, 12, "Gbit/s", "tcp_bandwidth_gbps", seed=m.id))

    return judged(one, topology, plan_of(topology, ("transport",)))


def test_a_rail_that_fails_as_a_whole_is_named_and_none_of_its_ports():
    (finding,) = slow(railed(), lambda a, b: a.port == "fab1").findings
    assert (finding.kind, finding.subject) == ("cluster", "cluster, rail 10.79.0.0/24")
    assert "all 12 measured pairs of rail 10.79.0.0/24 fail" in finding.text
    assert "What the ports" not in finding.remedy
    assert "share" in finding.remedy


def test_a_rail_and_a_port_of_another_are_both_named():
    verdict = slow(railed(), lambda a, b: a.port == "fab1" or (a.port == "fab2" and "gpu3" in (a.node, b.node)))
    assert {f.subject for f in verdict.findings} == {"cluster, rail 10.79.0.0/24", "gpu3/fab2"}


def test_all_rails_are_the_cluster_and_a_single_one_is_no_rail():
    assert [f.subject for f in slow(railed(), lambda a, b: True).findings] == ["cluster"]
    topology = railed(rails=1)
    assert [f.subject for f in slow(topology, lambda a, b: True).findings] == ["cluster"]


NAMES = tuple(f"gpu{i}" for i in range(1, 9))


def values(which, rate, usual=9.6):
    def one(m):
        if m.kind == "facts":
            from tests.support.site import healthy

            return healthy(m, facts={"virt": "none", "lab": ""})
        if m.kind != "tcp-bandwidth":
            return None
        value = rate if which(*(e.node for e in m.endpoints)) else usual
        return result(m, around(value, 12, "Gbit/s", "tcp_bandwidth_gbps", seed=m.id))

    return one


@pytest.fixture
def site():
    topology = hardware(NAMES)
    return topology, plan_of(topology, ("preflight", "transport"))


def told(verdict):
    return [n for n in verdict.notes if "than its equals" in n]


def test_a_port_that_passes_and_is_slower_than_its_equals_is_told_and_fails_nothing(site):
    verdict = judged(values(lambda a, b: a == "gpu3", 9.05), *site)
    (note,) = told(verdict)
    assert "tr.tcpbw: port gpu3/fab0 when sending is 6% slower than its equals in 7 of its 7 pairs" in note
    assert "within the bound" in note
    assert not [f for f in verdict.findings if "tr.tcpbw" in f.criteria]


def test_equals_are_not_told_nor_a_single_pair_nor_what_failed(site):
    assert not told(judged(values(lambda a, b: False, 9.05), *site))
    assert not told(judged(values(lambda a, b: (a, b) == ("gpu1", "gpu2"), 9.05), *site))
    assert not told(judged(values(lambda a, b: a == "gpu3", 4.0), *site))


def test_rates_of_a_lab_are_not_compared():
    topology = lab(NAMES)
    assert not told(judged(spoil("tcp-bandwidth", lambda a, b: a == "gpu3", 0.95), topology, plan_of(topology)))
