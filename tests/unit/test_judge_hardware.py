"""PCI Express links and NUMA nodes, judged. How they are read: test_trees.py."""

from __future__ import annotations

import pytest

from tests.support.site import (
    BOM,
    GPU,
    LAB,
    NIC,
    PLAN,
    REAL,
    REAL_FACTS,
    REAL_PCI,
    below,
    criterion,
    node,
    plan_of,
    results_of,
    verdict_of,
    with_facts,
)

PLAN_REAL = plan_of(REAL, ["preflight"])


def judged(id_, pci, odd="gpu2", topology=REAL, plan=PLAN_REAL, fabric="tcp10", **facts):
    """The criterion where node `odd` has these cards, all others healthy ones."""
    results = [
        with_facts(r, pci=pci, **facts) if r.measurement == f"facts.{odd}" else r
        for r in results_of(plan, facts=REAL_FACTS if topology is REAL else None)
    ]
    return criterion(verdict_of(topology, plan, results, fabric=fabric), id_)


def test_healthy_cards_pass():
    found = judged("pf.pcie", REAL_PCI)
    assert (found.verdict, found.coverage) == ("pass", "4/4 nodes")
    found = judged("pf.numa", REAL_PCI)
    assert (found.verdict, found.coverage) == ("pass", "2/2 nodes")  # GPU servers alone
    assert "NUMA node 0" in found.judgements[0].text


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({**NIC, "link": {"gt_s": 8, "lanes": 8}}, "fab0 (0000:3b:00.0): 8 GT/s x8, rated"),
        ({**NIC, "link": {"gt_s": 2.5, "lanes": 16}}, "2.5 GT/s x16, rated 8 GT/s x16"),
        ({**GPU, "link": {"gt_s": 8, "lanes": 4}}, "GPU 0000:18:00.0: 8 GT/s x4"),
    ],
)
def test_a_link_below_its_rating_is_found_and_named(card, words):
    found = judged("pf.pcie", [card])
    bad = [j for j in found.judgements if j.verdict == "fail"]
    assert [j.subject for j in bad] == ["gpu2"]
    assert words in bad[0].reason


def test_a_fast_card_in_a_slower_slot_is_at_its_rating():
    assert judged("pf.pcie", [{**NIC, "card": {"gt_s": 16, "lanes": 16}}]).verdict == "pass"


def test_an_idle_gpu_is_not_called_slow():
    found = judged("pf.pcie", [{**GPU, "link": {"gt_s": 2.5, "lanes": 16}}])
    assert found.verdict == "not-measured"
    assert "under load" in found.reason


def test_what_no_register_shows_is_not_measured_with_the_reason():
    found = judged("pf.pcie", [{"what": "nic", "interface": "fab0", "address": "0000:00:03.0"}])
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert "no PCI Express link is shown of fab0" in found.reason
    found = judged("pf.pcie", [{"what": "nic", "interface": "fab0"}], topology=LAB, plan=PLAN, virt="kvm")
    assert (found.verdict, found.reason_code) == ("not-measured", "virtual")
    assert any("a virtual device has none" in j.reason for j in found.judgements)
    assert any("is a container (systemd-nspawn)" in j.reason for j in found.judgements)


def test_a_gpu_far_from_its_port_fails_and_both_are_named():
    found = judged("pf.numa", [NIC, {**GPU, "numa": 1}])
    assert found.verdict == "fail"
    assert "GPU 0000:18:00.0 is on NUMA node 1, its ports elsewhere (fab0 on 0)" in found.reason


@pytest.mark.parametrize(
    ("pci", "words"),
    [
        ([NIC], "no GPU in this node"),
        ([GPU], "no fabric port in this node"),
        ([{**card, "numa": None} for card in REAL_PCI], "assigns no NUMA node to GPU 0000:18:00.0, fab0"),
    ],
)
def test_numa_that_nobody_can_tell_is_not_measured(pci, words):
    found = judged("pf.numa", pci)
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert words in found.reason


def vm(id_, pci):
    """gpu2's judgement as a virtual machine on a fabric of such; all others are real machines."""
    plan = plan_of(REAL, ["preflight"], "vmxnet3-10")
    found = judged(id_, pci, plan=plan, fabric="vmxnet3-10", virt="vmware")
    return next(j for j in found.judgements if j.subject == "gpu2")


@pytest.mark.parametrize("id_", ["pf.pcie", "pf.numa"])
def test_slots_and_numa_nodes_of_a_virtual_machine_are_its_hypervisors(id_):
    found = vm(id_, REAL_PCI)
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert "gpu2 is a virtual machine (vmware)" in found.reason


def test_lanes_that_a_card_in_a_virtual_machine_lacks_are_found():
    found = vm("pf.pcie", [NIC, {**GPU, "link": {"gt_s": 8.0, "lanes": 4}, **below("02", gt_s=5.0, lanes=32)}])
    assert found.verdict == "fail"
    assert "8 GT/s x4" in found.reason


@pytest.mark.parametrize(("count", "judged_nodes"), [(0, {"gpu1"}), (None, {"gpu1", "gpu2"})])
def test_a_gpu_server_that_declares_to_have_no_fabric_port_has_none_to_be_near(count, judged_nodes):
    bom = BOM.model_copy(update={"fabric_port_count": count})
    alone = node("gpu2", 14, ports=(), bom=bom, virtual=None)
    topology = REAL.model_copy(update={"nodes": (*REAL.nodes[:3], alone)})
    plan = plan_of(topology, ["preflight"])
    results = [
        with_facts(r, pci=[GPU]) if r.measurement == "facts.gpu2" else r for r in results_of(plan, facts=REAL_FACTS)
    ]
    found = criterion(verdict_of(topology, plan, results), "pf.numa")
    assert {j.subject for j in found.judgements} == judged_nodes
