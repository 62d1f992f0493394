"""Cause and effect are one finding; a slow port without a cause is told what sets its node apart."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.site import CRITERIA, criterion, healthy, judged, lab, plan_of, run_info, spoil, with_value
from toolkit.verdict_text import print_verdict
from validation.report.named_findings import named
from validation.verdict.causes import EXPLAINS, explains

NIC = {
    "what": "nic",
    "interface": "fab0",
    "address": "0000:3b:00.0",
    "link": {"gt_s": 16.0, "lanes": 16},
    "card": {"gt_s": 16.0, "lanes": 16},
    "numa": 0,
    "board": "15b3:101d",
    "firmware": "28.39.1002",
}


def sick(cause=None, slow=lambda m: "gpu2" in m.nodes, facts=lambda node: {}):
    """A site with slow pairs, with the facts that `facts` says of each node; `cause` may spoil anything else."""

    def one(m):
        if m.kind == "facts":
            return healthy(m, facts=facts(m.nodes[0]))
        if cause is not None and (said := cause(m)) is not None:
            return said
        return with_value(m, 0.0985) if m.kind == "tcp-bandwidth" and slow(m) else None

    return one


def short(node):
    """gpu2's adapter has 4 of its 16 lanes, so that pf.pcie fails there."""
    link = {"link": {"gt_s": 16.0, "lanes": 4}} if node == "gpu2" else {}
    return {"virt": "none", "pci": [{**NIC, **link}]}


def test_a_fault_of_preflight_that_explains_six_slow_pairs_is_one_finding():
    verdict = judged(sick(facts=short))
    assert criterion(verdict, "pf.pcie").verdict == criterion(verdict, "tr.tcpbw").verdict == "fail"
    (finding,) = verdict.findings
    assert (finding.kind, finding.subject) == ("port", "gpu2/fab0")
    assert finding.criteria == ("pf.pcie", "tr.tcpbw")
    assert "x4" in finding.cause
    assert "found by itself in preflight" in finding.cause
    assert "6 of its 6 pairs" in finding.text
    assert "x4" not in finding.text
    assert finding.remedy.startswith("Reseat the card")
    assert finding.confidence > 0.9
    assert any(e.startswith("facts.") for e in finding.evidence)
    assert sum(e.startswith("tcp-bandwidth") for e in finding.evidence) == 6


def test_links_that_are_slow_because_of_one_end_become_that_end():
    """Of two pairs no port is named; the node at which preflight found something is."""
    pairs = ({"gpu1", "gpu2"},)
    (finding,) = judged(sick(slow=lambda m: set(m.nodes) in pairs, facts=short)).findings
    assert (finding.kind, finding.subject) == ("node", "gpu2")
    assert finding.criteria == ("pf.pcie", "tr.tcpbw")


def test_a_fault_elsewhere_explains_nothing_and_stays_by_itself():
    verdict = judged(sick(slow=lambda m: "gpu1" in m.nodes, facts=short))
    assert {(f.subject, f.criteria) for f in verdict.findings} == {("gpu2", ("pf.pcie",)), ("gpu1/fab0", ("tr.tcpbw",))}
    assert not any("x4" in f.cause for f in verdict.findings if f.subject != "gpu2")


def test_a_fault_that_cannot_be_the_cause_is_not_taken_for_one():
    def declared(node):
        return {"model": "another" if node == "gpu2" else "nspawn"}

    verdict = judged(sick(facts=declared))
    assert {(f.subject, f.criteria) for f in verdict.findings} == {("gpu2", ("pf.bom",)), ("gpu2/fab0", ("tr.tcpbw",))}


def test_two_faults_at_once_with_a_cause_each():
    def both(node):
        return {
            "virt": "none",
            "pci": [{**NIC, **({"link": {"gt_s": 16.0, "lanes": 4}} if node.startswith("gpu") else {})}],
        }

    topology = lab((*(f"gpu{i}" for i in range(1, 3)), *(f"client{i}" for i in range(1, 5))))
    found = judged(
        sick(slow=lambda m: {"gpu1", "gpu2"} & set(m.nodes), facts=both), topology, plan_of(topology)
    ).findings
    assert {(f.subject, f.criteria) for f in found} == {(f"gpu{i}/fab0", ("pf.pcie", "tr.tcpbw")) for i in (1, 2)}


@pytest.mark.parametrize(
    ("differs", "words"),
    [
        ({"kernel": "6.1.0-odd"}, "kernel is 6.1.0-odd, of the 3 others 6.1.0"),
        ({"fabric_ports": [{"interface": "fab0", "operstate": "up", "mtu": 9000, "speed_mbit": 1000}]}, "1000"),
        ({"pci": [{**NIC, "firmware": "28.33.0751"}]}, "firmware of fab0 is 28.33.0751"),
        ({"pci": [{**NIC, "numa": 1}]}, "NUMA node of fab0 is 1, of the 3 others 0"),
        ({"cpu_model": "Xeon A"}, "processor is Xeon A"),
    ],
)
def test_what_sets_a_slow_node_apart_is_its_probable_cause(differs, words):
    usual = {"pci": [NIC], "cpu_model": "Xeon B"}
    verdict = judged(sick(facts=lambda node: {**usual, **(differs if node == "gpu2" else {})}))
    slow = next(f for f in verdict.findings if "tr.tcpbw" in f.criteria)
    assert slow.subject.startswith("gpu2")
    assert words in slow.cause


def test_nothing_odd_is_no_cause_and_nodes_that_all_differ_are_no_measure():
    (finding,) = judged(sick()).findings
    assert finding.cause == ""
    kernels = iter(range(10))
    verdict = judged(sick(facts=lambda node: {"cpu_model": f"Xeon {next(kernels)}"}))
    assert not any("processor" in f.cause for f in verdict.findings)


def test_confidence_grows_with_partners_and_two_ends_alone_are_a_coin():
    verdict = judged(spoil("tcp-bandwidth", lambda a, b: "gpu2" in (a, b), 0.0985))
    assert verdict.findings[0].confidence == 0.875
    topology = lab(("gpu1", "gpu2"))
    verdict = judged(spoil("tcp-bandwidth", lambda a, b: True, 0.0985), topology, plan_of(topology))
    assert verdict.findings[0].confidence == 0.5


def test_only_criteria_that_exist_are_named():
    ids = {c.id for c in CRITERIA}
    for cause, effects in EXPLAINS.items():
        assert cause in ids
        for effect in effects:
            assert any(i == effect or (effect.endswith(".") and i.startswith(effect)) for i in ids), effect
    assert explains("pf.pcie", "tn.short")
    assert not explains("pf.bom", "tr.tcpbw")
    assert not explains("pf.pcie", "tr.")


def test_cause_and_confidence_are_on_the_terminal_and_in_what_is_published():
    topology = lab()
    plan = plan_of(topology)
    verdict = judged(sick(facts=short), topology, plan)
    out = io.StringIO()
    print_verdict(Console(file=out, width=400), run_info(topology, plan), verdict, Path("run"), None)
    said = out.getvalue()
    assert "cause: found by itself in preflight" in said
    assert "confidence: 94% that it is this part" in said
    published = named(verdict.findings[0])
    assert published.cause == verdict.findings[0].cause
    assert published.confidence == verdict.findings[0].confidence
