"""Only equals of a criterion are held against each other: one way or both ways at once, each operation by itself."""

from __future__ import annotations

import importlib

import pytest

from tests.support.rdma_case import LOADED, machines, port_facts
from tests.support.rdma_case import document as ports_document
from tests.support.site import CRITERIA, REAL_FACTS, criterion, healthy, healthy_rdma, plan_of, result, verdict_of
from validation.analysis.chance import EQUALS
from validation.kinds import parse
from validation.model import Endpoint, Subject
from validation.run.baseline import _groups
from validation.trend.gather import _series
from validation.verdict.addendum import figures_of

TOPOLOGY = machines(6)
PLAN = plan_of(TOPOLOGY, LOADED, "roce40")
LATENCY_US = {"write": 1.7, "send": 1.8, "read": 2.1}
RATES = {"write": 39.0, "send": 38.8, "read": 38.4}
BOTH = 1.99
"""Of both ways at once a port carries somewhat less than twice what it carries one way."""


def share(m, slow):
    """What `slow` leaves of a measurement, by its sender, receiver, whether both ways at once, and operation."""
    one, other = (e.node for e in m.endpoints)
    op, both = m.params.get("op"), bool(m.params.get("bidirectional"))
    if op == "read":
        one, other = other, one
    return slow(one, other, both, op)


def run(slow=lambda *asked: 1.0):
    """A site whose ports are all alike, but for `slow`."""
    found = []
    for m in PLAN.measurements:
        if m.kind == "facts":
            found.append(healthy(m, facts=REAL_FACTS))
        elif m.kind == "rdma-ports":
            samples, facts = parse(m.kind, ports_document(port_facts(TOPOLOGY, m)), m.params)
            found.append(result(m, samples, facts=facts))
        elif m.kind == "rdma-bandwidth":
            op, both = m.params["op"], m.params.get("bidirectional")
            one = healthy_rdma(m, RATES[op] / 38.5 * (BOTH / 2 if both else 1.0) * share(m, slow))
            found.append(one)
        elif m.kind == "rdma-latency":
            first, *rest = healthy_rdma(m).samples
            value = first.model_copy(update={"value": LATENCY_US[m.params["op"]]})
            found.append(healthy_rdma(m).model_copy(update={"samples": (value, *rest)}))
        else:
            found.append(healthy(m, link_gbps=39.5))
    return verdict_of(TOPOLOGY, PLAN, found, fabric="roce40")


HEALTHY = run()


def told(verdict):
    return [n for n in verdict.notes if "than its equals" in n]


def test_a_passing_rdma_site_is_told_nothing_of_any_port():
    assert criterion(HEALTHY, "tr.rdmabw").verdict == criterion(HEALTHY, "tr.rdmalat").verdict == "pass"
    assert told(HEALTHY) == []
    assert HEALTHY.findings == ()


@pytest.mark.parametrize(
    ("slow", "wanted"),
    [
        (lambda a, b, both, op: 0.95 if a == "gpu3" and not both else 1.0, "port gpu3/fab0 when sending is 5%"),
        (lambda a, b, both, op: 0.95 if b == "gpu3" and not both else 1.0, "port gpu3/fab0 when receiving is 5%"),
        (lambda a, b, both, op: 0.95 if "gpu6" in (a, b) and both else 1.0, "both ways): port gpu6/fab0 is 5%"),
        (lambda a, b, both, op: 0.95 if "gpu1" in (a, b) and both else 1.0, "both ways): port gpu1/fab0 is 5%"),
    ],
)
def test_a_slow_port_is_told_in_the_direction_in_which_its_data_go(slow, wanted):
    notes = told(run(slow))
    assert len(notes) == 3  # write, send and read
    assert all(wanted in note and "5 of its 5 pairs" in note for note in notes)


@pytest.mark.parametrize("node", ["gpu1", "gpu3", "gpu6"])
def test_what_fails_both_ways_at_once_is_no_fault_of_a_direction(node):
    (finding,) = run(lambda a, b, both, op: 0.5 if node in (a, b) and both else 1.0).findings
    assert finding.subject == f"{node}/fab0"
    assert f"{node}/fab0 fails with both ways at once in 5 of its 5 pairs" in finding.text
    assert "sending" not in finding.text
    assert "receiving" not in finding.text


def test_what_fails_one_way_and_both_ways_is_one_finding_of_that_direction_with_all_evidence():
    verdict = run(lambda a, b, both, op: 0.5 if a == "gpu2" or (both and b == "gpu2") else 1.0)
    (finding,) = verdict.findings
    assert "gpu2/fab0 fails when sending in 5 of its 5 pairs" in finding.text
    failed = {e for j in criterion(verdict, "tr.rdmabw").judgements if j.verdict == "fail" for e in j.evidence}
    assert set(finding.evidence) == failed
    for op, rate in RATES.items():  # healthy pairs are those of the same operation, one way
        assert f"({op}) median {rate / 2:.4g} Gbit/s" in finding.text
        assert f"(healthy pairs {rate:.4g})" in finding.text


def test_of_a_read_the_data_come_from_the_destination():
    one, other = Endpoint(node="a"), Endpoint(node="b")
    assert Subject.pair(one, other, "read").flows == ((other, one),)
    assert Subject.pair(one, other, "write").flows == ((one, other),)
    assert Subject.pair(one, other, "read", both_ways=True).flows == ((one, other), (other, one))
    assert Subject.node("a").flows == ()


def sorts_of(groups):
    return {sort for id_, sort in groups if id_ == "tr.rdmabw"}


def test_runs_are_held_against_each_other_one_way_and_both_ways_apart(monkeypatch):
    entries = {c.id: c for c in CRITERIA}
    judged = criterion(HEALTHY, "tr.rdmabw").judgements
    wanted = {("pair", op, both) for op in RATES for both in (False, True)}
    assert {j.about.sort for j in judged} == wanted
    assert sorts_of(_series([(None, HEALTHY), (None, HEALTHY)], entries)) == wanted
    levels, _ = _groups([(None, HEALTHY), (None, HEALTHY)], entries)
    sizes = sorted(len(group.values) for id_, group in levels if id_ == "tr.rdmabw")
    assert sizes == [15, 15, 15, 30, 30, 30]
    asked = []
    module = importlib.import_module("validation.compare.compare")
    monkeypatch.setattr(module, "settled", lambda pairs: asked.extend(pairs) or [shift for _, shift in asked])
    documents = type("D", (), {"catalogue": entries, "latest": {}})()
    module._figures(documents, documents, HEALTHY, HEALTHY)
    assert sorts_of(group for group, _ in asked) == wanted
    assert min(sizes) >= EQUALS  # so that a change of both ways is not weighed by the scatter of one way


def test_a_node_is_held_against_accepted_figures_of_the_same_sort():
    entries = {c.id: c for c in CRITERIA}
    now = run(lambda a, b, both, op: 0.9 if both and "gpu2" in (a, b) else 1.0)
    seen = [s for s in figures_of("gpu2", HEALTHY, now, entries) if s.criterion == "tr.rdmabw"]
    assert len(seen) == 6
    assert {s.beyond for s in seen if "both ways" in s.subject} == {True}
    assert {s.beyond for s in seen if "both ways" not in s.subject} == {False}
