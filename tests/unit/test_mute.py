"""Ports through which nothing comes are told apart, several at once; what TCP sends again is judged by its share."""

from __future__ import annotations

import pytest

from tests.support.site import FACTS, LAB_LINK, criterion, healthy, lab, node, plan_of, result, results_of, verdict_of
from validation.model import Port, Sample, Topology

NAMES = ("head", "client1", "gpu1", "gpu2", "gpu3", "gpu4")
SITE = lab(NAMES)
PLAN = plan_of(SITE, ("preflight", "transport"))
ERROR = "10.78.0.14 does not answer ping, not even with 576 bytes"


def verdict(bad, more=None):
    """Of a site in which the pairs for which `bad(kind, source, destination)` holds came to nothing."""

    def change(m):
        if m.kind in ("path-mtu", "tcp-bandwidth", "tcp-latency") and bad(m.kind, *m.nodes):
            return result(m, status="failed", error=ERROR)
        return more(m) if more else None

    return verdict_of(SITE, PLAN, results_of(PLAN, change))


def test_two_mute_ports_at_once_are_both_named_and_nobody_else():
    found = verdict(lambda kind, *nodes: {"gpu2", "gpu4"} & set(nodes)).findings
    assert sorted(f.subject for f in found) == ["gpu2/fab0", "gpu4/fab0"]
    assert all("have no usable result" in f.text and ERROR in f.text for f in found)
    assert all({"pf.mtu", "tr.tcpbw"} <= set(f.criteria) for f in found)


def test_one_direction_and_one_kind():
    found = verdict(lambda kind, a, b: (kind == "tcp-bandwidth" and b == "gpu3") or "gpu1" in (a, b)).findings
    assert {f.subject for f in found} == {"gpu3/fab0", "gpu1/fab0"}
    assert "when receiving" in next(f.text for f in found if f.subject == "gpu3/fab0")


def test_a_single_one_is_its_node_as_before_and_a_pair_by_itself_is_nobodys():
    assert [f.subject for f in verdict(lambda kind, *nodes: "gpu2" in nodes).findings] == ["gpu2"]
    assert not verdict(lambda kind, a, b: {a, b} in ({"gpu1", "gpu2"}, {"gpu3", "gpu4"})).findings


@pytest.mark.parametrize("said", [False, True])
def test_of_a_node_with_two_ports_the_one_through_which_nothing_comes_is_named(said: bool) -> None:
    """Its other port is well; where the node itself was lost, it is the node all the same."""

    def ports(n: int) -> tuple[Port, ...]:
        return tuple(Port(interface=f"fab{r}", address=f"10.{78 + r}.0.{n}", prefix=24) for r in range(2))

    nodes = tuple(node(name, n, ports=ports(n)) for n, name in enumerate(NAMES, 1))
    site = Topology(site="lab", nodes=nodes, lab_link=LAB_LINK)
    plan = plan_of(site, ("transport",))
    facts = {"unreachable": "gpu3"} if said else {}

    def change(m):
        if "gpu3/fab1" in map(str, m.endpoints) and len(m.endpoints) == 2:
            return result(m, status="failed", error=ERROR, facts=facts)
        return None

    (found,) = verdict_of(site, plan, results_of(plan, change)).findings
    assert found.subject == ("gpu3" if said else "gpu3/fab1")
    assert found.kind == ("node" if said else "port")
    assert ERROR in found.text
    assert found.remedy.startswith("Bring the node back" if said else "Look at the port's link")


def test_what_fails_at_a_stolen_address_is_told_of_who_has_it_too():
    address = next(n for n in SITE.nodes if n.name == "gpu3").ports[0].address

    def more(m):
        if m.kind != "facts":
            return None
        own = next(n for n in SITE.nodes if n.name == m.nodes[0]).ports[0].address
        shown = [own, address] if m.nodes[0] == "gpu4" else [own]
        state = {"addresses": [{"interface": "fab0", "address": one} for one in shown], "utc_offset_s": 0}
        return healthy(m, facts={**FACTS, "state": state})

    (found,) = verdict(lambda kind, a, b: kind == "tcp-bandwidth" and b == "gpu3", more).findings
    assert found.subject == "gpu4/fab0"
    assert "gpu3" in found.cause
    assert found.criteria[0] == "pf.ports"


def resent(count):
    """Pairs to gpu2 whose sender sent so many segments again, at the link's whole rate."""

    def more(m):
        if m.kind != "tcp-bandwidth":
            return None
        mine = healthy(m)
        again = Sample(metric="retransmits", value=count if m.nodes[1] == "gpu2" else 3, unit="count")
        return mine.model_copy(
            update={
                "samples": (*(s for s in mine.samples if s.metric != "retransmits"), again),
                "facts": {"receiver_mean_gbps": 0.985},
            }
        )

    return more


@pytest.mark.parametrize(("count", "names"), [(0, []), (200, []), (800, ["gpu2/fab0"])])
def test_a_port_that_loses_is_found_at_the_full_rate(count, names):
    found = verdict(lambda *_: False, resent(count))
    assert [f.subject for f in found.findings] == names
    assert {j.verdict for j in criterion(found, "tr.tcpbw").judgements} == {"pass"}
    failed = [j for j in criterion(found, "tr.tcploss").judgements if j.verdict == "fail"]
    assert len(failed) == 5 * len(names)
    if names:
        assert "when receiving" in found.findings[0].text
        assert failed[0].value == pytest.approx(800 / (0.985e9 / 8 * 2 / 8948))


def test_a_result_that_does_not_count_is_not_measured():
    def silent(m):
        mine = healthy(m)
        kept = tuple(s for s in mine.samples if s.metric != "retransmits")
        return mine.model_copy(update={"samples": kept}) if m.kind == "tcp-bandwidth" else None

    found = verdict(lambda *_: False, silent)
    assert {j.verdict for j in criterion(found, "tr.tcploss").judgements} == {"not-measured"}
