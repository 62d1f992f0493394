"""Storage beside the network: what both had together, and who did not take part."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.site import criterion, plan_of, result, verdict_of
from tests.support.storage_documents import HOME, healthy_storage, joined, report, shown_beside, site
from validation.kinds import job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.storage import storage_beside
from validation.model import Judgement, Measurement, Storage, Topology
from validation.probes.tool import Ran

pytestmark = pytest.mark.computes


def together(topology: Topology) -> Measurement:
    return plan_of(topology, ("storage",)).measurement("storage-together.home")


def judged(storage: Storage = HOME, **changed: Any) -> Judgement:
    """`changed`: node -> its `beside`."""
    topology = site(storage)
    m = together(topology)
    reports = {node: report(m, node) for node in m.nodes}
    for node, beside in changed.items():
        reports[node]["beside"] = beside
    samples, facts = parse(m.kind, joined(m, reports), m.params)
    results = [result(m, samples, facts=facts) if one.id == m.id else healthy_storage(one)
               for one in plan_of(topology, ("storage",)).measurements]  # fmt: skip
    return criterion(verdict_of(topology, plan_of(topology, ("storage",)), results), "st.beside").judgements[0]


def test_each_node_sends_to_the_next_one() -> None:
    topology = site()
    m = together(topology)
    ends = [(seat.call.params["address"], seat.call.params["peer"]) for seat in job_for(m, topology).sending]
    assert [peer for _, peer in ends] == [mine for mine, _ in ends[1:] + ends[:1]]
    assert len({mine for mine, _ in ends}) == len(m.nodes)


def test_what_both_had_together_is_recorded_and_against_an_order_judged() -> None:
    one = judged()
    assert (one.verdict, one.reason_code) == ("not-applicable", "reported")
    assert one.text is not None
    assert "storage 4.499 GB/s, 0.75 of the 6 without the network; network 3 GB/s, 0.80 of the 3.75" in one.text
    assert one.text.endswith("both 7.499 GB/s")
    assert judged(HOME.model_copy(update={"beside_share": 0.7})).verdict == "pass"
    short = judged(HOME.model_copy(update={"beside_share": 0.95}))
    assert (short.verdict, short.reason_code) == ("fail", "below-floor")


def test_a_node_without_the_tool_one_that_was_late_and_one_that_did_not_read_are_named() -> None:
    p = together(site()).params
    gone = {"error": "iperf3: No such file or directory", "late": []}
    for beside, words in (
        (shown_beside(p, alone=gone, both=gone), "gpu1: iperf3: No such file or directory"),
        (shown_beside(p, read={"error": "fio: I/O error"}), "gpu1: fio: I/O error"),
        ({}, "gpu1: was not measured"),
    ):
        one = judged(gpu1=beside)
        assert (one.verdict, words in one.reason) == ("not-measured", True), one.reason
    late = shown_beside(p)
    late["both"] = {**late["both"], "late": ["gpu2"]}
    assert "gpu2 did not begin with the others" in judged(gpu1=late).reason


def test_a_rate_that_is_none_is_no_result() -> None:
    with pytest.raises(ParseError):
        judged(gpu1=shown_beside(together(site()).params, alone={"error": "", "late": [], "bytes": 5, "seconds": -1}))


def test_what_iperf3_says_is_read_and_what_it_does_not_say_is_a_fault() -> None:
    good = '{"end": {"sum_received": {"bytes": 600, "seconds": 6.0}}}'
    assert storage_beside.received(Ran(["iperf3"], 0, good, "")) == {"error": "", "bytes": 600, "seconds": 6.0}
    refused = Ran(["iperf3"], 1, '{"error": "unable to connect to server"}', "")
    assert storage_beside.received(refused)["error"] == "iperf3: unable to connect to server"
    assert "cannot be used" in storage_beside.received(Ran(["iperf3"], 0, "{}", ""))["error"]
