"""Who is named, once, and what a dead node costs."""

from __future__ import annotations

import pytest

from tests.support.site import BOM, LAB, criterion, judged, lab, node, plan_of, result, spoil, with_value
from validation.model import Endpoint, Port, Subject, Topology


def test_a_link_at_a_tenth_names_that_node_and_no_other():
    verdict = judged(spoil("tcp-bandwidth", lambda a, b: "gpu2" in (a, b), 0.0985))
    (finding,) = verdict.findings
    assert (finding.kind, finding.subject, finding.criteria) == ("port", "gpu2/fab0", ("tr.tcpbw",))
    for words in ("node gpu2", "6 of its 6 pairs", "0.098", "0.94"):
        assert words in finding.text
    assert finding.remedy
    assert len(finding.evidence) == 6
    for other in ("gpu1", "client1", "head"):
        assert other not in finding.text + finding.subject + verdict.headline
    assert [c.id for c in verdict.criteria if c.verdict == "fail"] == ["tr.tcpbw"]
    assert "gpu2/fab0" in verdict.headline
    assert (verdict.exit_code, verdict.sign_off) == (1, "REHEARSAL")


@pytest.mark.parametrize(
    ("pick", "kind", "subject", "words"),
    [
        (lambda a, b: a == "gpu2", "port", "gpu2/fab0", "when sending"),
        (lambda a, b: b == "gpu2", "port", "gpu2/fab0", "when receiving"),
        (lambda a, b: (a, b) == ("gpu1", "gpu2"), "pair", "gpu1/fab0>gpu2/fab0", "this direction only"),
        (lambda a, b: {a, b} == {"gpu1", "gpu2"}, "link", "gpu1/fab0<>gpu2/fab0", "both ends are fine with others"),
        (lambda a, b: True, "cluster", "cluster", "no single port"),
    ],
)
def test_what_is_named(pick, kind, subject, words):
    (finding,) = judged(spoil("tcp-bandwidth", pick, 0.0985)).findings
    assert (finding.kind, finding.subject) == (kind, subject)
    assert words in finding.text


def test_with_two_nodes_nobody_can_tell_and_it_is_said():
    topology = lab(("gpu1", "gpu2"))
    (finding,) = judged(spoil("tcp-bandwidth", lambda a, b: True, 0.0985), topology, plan_of(topology)).findings
    assert finding.kind == "link"
    assert "nobody can tell" in finding.text
    assert "third node" in finding.remedy


def test_several_criteria_that_point_at_one_port_make_one_finding():
    def sick(m):
        if len(m.endpoints) == 2 and "gpu2" in m.nodes:
            return with_value(m, {"tcp-bandwidth": 0.0985, "tcp-latency": 5000, "path-mtu": 1500}[m.kind])
        return None

    (finding,) = judged(sick).findings
    assert finding.criteria == ("pf.mtu", "tr.tcpbw", "tr.netlat")
    assert finding.subject == "gpu2/fab0"


def test_all_ports_of_a_node_make_it_the_node():
    def two(name, i):
        ports = tuple(Port(interface=f"fab{r}", address=f"10.{78 + r}.0.{i}", prefix=24) for r in (0, 1))
        return node(name, i, ports=ports, bom=BOM.model_copy(update={"fabric_port_count": 2}))

    topology = Topology(site="s", lab_link=LAB.lab_link, nodes=tuple(two(f"gpu{i}", i) for i in (1, 2, 3, 4)))
    plan = plan_of(topology, ("transport",))
    (finding,) = judged(spoil("tcp-bandwidth", lambda a, b: "gpu2" in (a, b), 0.1), topology, plan).findings
    assert (finding.kind, finding.subject) == ("node", "gpu2")


def test_a_dead_node_is_named_and_costs_only_its_own():
    def dead(m):
        return result(m, status="unreachable", error="ssh: no route to host") if "gpu2" in m.nodes else None

    verdict = judged(dead)
    (finding,) = verdict.findings
    assert (finding.kind, finding.subject) == ("node", "gpu2")
    assert "no route" in finding.text
    assert verdict.exit_code == 3
    across = ("training-short.inter", "training-turns.scale", "training-turns.outup", "collectives.two")
    across += ("incast.head-fab0", "all-to-all.head-fab0")
    assert all("gpu2" in m or m in across or m.startswith("training-long.") for m in verdict.missing)
    assert criterion(verdict, "tr.tcpbw").coverage == "6/12 pairs"


def test_the_executor_may_name_the_node_that_died():
    def dead(m):
        if m.id != "tcp-bandwidth.gpu1-fab0.gpu2-fab0":
            return None
        return result(m, status="unreachable", error="connection lost", facts={"unreachable": "gpu1"})

    (finding,) = judged(dead).findings
    assert (finding.kind, finding.subject) == ("node", "gpu1")


A, B = (Endpoint(node=node, port="fab0") for node in ("gpu1", "gpu2"))


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (Subject.node("gpu1"), "gpu1"),
        (Subject.node("gpu1", "2 ranks"), "gpu1, 2 ranks"),
        (Subject.port(A), "gpu1/fab0"),
        (Subject.port(Endpoint(node="gpu1")), "gpu1"),
        (Subject.pair(A, B), "gpu1/fab0>gpu2/fab0"),
        (Subject.pair(A, B, both_ways=True), "gpu1/fab0<>gpu2/fab0"),
        (Subject.pair(A, B, "write"), "gpu1/fab0>gpu2/fab0 (write)"),
        (Subject.pair(A, B, "write", both_ways=True), "gpu1/fab0>gpu2/fab0 (write, both ways)"),
        (Subject(kind="cluster", op="4 ranks"), "cluster, 4 ranks"),
    ],
    ids=str,
)
def test_the_words_of_a_subject(subject, words):
    assert str(subject) == words
    assert Subject.model_validate_json(subject.model_dump_json()) == subject
