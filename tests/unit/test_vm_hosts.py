"""Virtual machines as what is accepted: two of one host are no pair of the fabric, and undeclared hosts withhold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.site import ALL, CRITERIA, criterion, hardware, plan_of, real_results, verdict_of, waive_all
from validation.model import Topology, VerdictDoc
from validation.plan.suites import SUITES
from validation.rules.profile import load_profile

HOSTS = ("esx1", "esx1", "esx2", "esx3")
PAIRS = ("pf.mtu", "tr.tcpbw", "tr.netlat")


def site(hosts: Sequence[str | None] = HOSTS) -> Topology:
    """head, client1, gpu1 and gpu2 on these hosts."""
    bare = hardware()
    nodes = (n.model_copy(update={"hypervisor_host": h}) for n, h in zip(bare.nodes, hosts, strict=True))
    return bare.model_copy(update={"nodes": tuple(nodes)})


def judged(hosts: Sequence[str | None], planned_for: Sequence[str | None] | None = None, virt: str = "vmware",
           fabric: str = "vmxnet3-10") -> VerdictDoc:  # fmt: skip
    plan = plan_of(site(planned_for or hosts), ALL, fabric)
    return verdict_of(site(hosts), plan, real_results(plan, {"virt": virt}), fabric=fabric)


def test_two_machines_of_one_host_are_not_planned_as_a_pair() -> None:
    plan = plan_of(site(), ALL, "vmxnet3-10")
    pairs = {frozenset(m.nodes) for m in plan.measurements if len(m.endpoints) == 2}
    assert len(pairs) == 5
    assert frozenset({"head", "client1"}) not in pairs
    assert any("head, client1: virtual machines of one host, esx1" in left.why for left in plan.left_out)
    assert len({frozenset(m.nodes) for m in plan_of(site(), ALL, "tcp10").measurements if len(m.endpoints) == 2}) == 6


def test_machines_of_declared_hosts_are_accepted() -> None:
    verdict = judged(HOSTS)
    plan = plan_of(site(), ALL, "vmxnet3-10")
    results = real_results(plan, {"virt": "vmware"})
    assert {criterion(verdict, id_).verdict for id_ in (*PAIRS, "tn.inter")} == {"pass"}
    network = load_profile("network", CRITERIA, SUITES)
    accepted = verdict_of(site(), plan, results, waive_all(verdict), fabric="vmxnet3-10", profile=network)
    assert accepted.sign_off == "ACCEPTED"


@pytest.mark.parametrize("id_", PAIRS)
def test_a_host_that_is_not_declared_withholds_the_pass_of_its_pairs(id_: str) -> None:
    found = criterion(judged(("esx1", "esx2", "esx3", None)), id_)
    assert (found.verdict, found.reason_code) == ("not-measured", "not-the-fabric")
    held = [j for j in found.judgements if j.verdict != "pass"]
    assert len(held) == 6
    assert all("elastic_ai_hypervisor_host of gpu2" in j.reason for j in held)
    assert all(j.value is not None for j in held), "what was measured is shown"


def test_what_was_measured_within_one_host_is_never_passed() -> None:
    """As of a plan that was made before the hosts were declared."""
    verdict = judged(HOSTS, planned_for=(None,) * 4)
    held = [j for j in criterion(verdict, "tr.tcpbw").judgements if j.reason_code == "not-the-fabric"]
    assert {j.subject for j in held} == {"head/fab0>client1/fab0", "client1/fab0>head/fab0"}
    assert "head and client1 are virtual machines of one host, esx1" in held[0].reason
    assert verdict.exit_code == 3


def test_training_within_one_host_is_none_across_nodes() -> None:
    plan = plan_of(site(("esx1", "esx2", "esx3", "esx3")), ALL, "vmxnet3-10")
    assert not [m for m in plan.measurements if m.id == "training-short.inter"]
    assert any("all GPU servers are virtual machines of esx3" in left.why for left in plan.left_out)
    assert criterion(judged((None,) * 4), "tn.inter").reason_code == "not-the-fabric"


def test_real_machines_need_no_host() -> None:
    assert criterion(judged((None,) * 4, virt="none"), "tr.tcpbw").verdict == "pass"
    assert criterion(judged((None,) * 4, virt="none", fabric="tcp10"), "tr.tcpbw").verdict == "pass"


def test_a_failure_stays_one_whatever_the_host() -> None:
    plan = plan_of(site((None,) * 4), ALL, "vmxnet3-10")
    results = [
        r.model_copy(update={"samples": tuple(s.model_copy(update={"value": s.value / 2}) for s in r.samples)})
        if r.measurement.startswith("tcp-bandwidth")
        else r
        for r in real_results(plan, {"virt": "vmware"})
    ]
    found = criterion(verdict_of(site((None,) * 4), plan, results, fabric="vmxnet3-10"), "tr.tcpbw")
    assert (found.verdict, found.reason_code) == ("fail", "below-floor")
