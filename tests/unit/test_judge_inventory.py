"""Bill of materials, stack and MTU against what the inventory declares."""

from __future__ import annotations

import pytest

from tests.support.site import (
    BOM,
    FACTS,
    GPU,
    LAB,
    NIC,
    REAL,
    REAL_FACTS,
    STACK,
    below,
    criterion,
    healthy,
    judged,
    lab,
    node,
    plan_of,
    spoil,
)
from validation.model import Bom, Port


def one_node(name, **facts):
    return lambda m: healthy(m, facts=facts) if m.id == f"facts.{name}" else None


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"model": "PowerEdge R740"}, "model is PowerEdge R740, nspawn declared"),
        ({"gpu_count": 3}, "gpu_count is 3, 0 declared"),
        ({"nic_model": "ConnectX-4"}, "nic_model is ConnectX-4, none declared"),
        ({"fabric_ports": [{"interface": "fab0", "operstate": "absent"}]}, "fabric_port_count is 0, 1 declared"),
    ],
)
def test_bill_of_materials(facts, words):
    verdict = judged(one_node("gpu1", **facts))
    bom = criterion(verdict, "pf.bom")
    assert (bom.verdict, bom.coverage) == ("fail", "4/4 nodes")
    assert words in next(j for j in bom.judgements if j.subject == "gpu1").reason
    gone = [("port", "gpu1/fab0")] if "fabric_port_count" in words else []
    assert sorted((f.kind, f.subject) for f in verdict.findings) == [("node", "gpu1"), *gone]


SWITCHED = [{**GPU, "address": f"0000:1{n}:00.0", **below("16")} for n in "abcd"]
DIRECT = [{**gpu, **below(f"{n}6")} for n, gpu in enumerate(SWITCHED, 1)]
SILVER = "Intel(R) Xeon(R) Silver 4116 CPU @ 2.10GHz"
ORDERED = BOM.model_copy(
    update={"cpu_model": SILVER, "cpu_sockets": 2, "cpu_cores": 24, "memory_gib": 192, "gpu_root_ports": 1}
)
THERE = {"cpu_model": SILVER, "cpu_sockets": 2, "cpu_cores": 24, "memory_gib": 191.5, "pci": [NIC, *SWITCHED]}


def of_ordered(**facts):
    """gpu2's judgement, which declares processors, memory and how its GPUs are attached."""
    topology = REAL.model_copy(update={"nodes": (*REAL.nodes[:3], node("gpu2", 14, bom=ORDERED, virtual=None))})
    plan = plan_of(topology)
    of_gpu2 = healthy(plan.measurement("facts.gpu2"), facts={**REAL_FACTS, **THERE, **facts})
    verdict = judged(lambda m: of_gpu2 if m.id == "facts.gpu2" else None, topology, plan, facts=REAL_FACTS)
    return next(j for j in criterion(verdict, "pf.bom").judgements if j.subject == "gpu2")


def test_processors_memory_and_the_gpus_way_to_the_host_are_materials_where_they_are_declared():
    found = of_ordered()
    assert found.verdict == "pass", found.reason
    parts = {c.key: (c.declared, c.found, c.equal) for c in found.compared}
    assert parts["cpu_model"] == (SILVER, SILVER, True)
    assert parts["memory_gib"] == ("192", "191.5", True)  # blocks of the kernel, and what the firmware keeps
    assert parts["gpu_root_ports"] == ("1", "1", True)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"cpu_model": "Intel(R) Xeon(R) Gold 6148"}, f"cpu_model is Intel(R) Xeon(R) Gold 6148, {SILVER} declared"),
        ({"cpu_sockets": 1}, "cpu_sockets is 1, 2 declared"),
        ({"cpu_cores": 22}, "cpu_cores is 22, 24 declared"),
        ({"memory_gib": 188.0}, "memory_gib is 188, 192 declared"),  # a module of 4 GiB is gone
        ({"memory_gib": 256.0}, "memory_gib is 256, 192 declared"),
        ({"pci": [NIC, *DIRECT]}, "gpu_root_ports is 4, 1 declared"),
    ],
)  # fmt: skip
def test_other_processors_memory_or_topology_than_declared_are_a_finding(facts, words):
    found = of_ordered(**facts)
    assert (found.verdict, found.reason_code) == ("fail", "not-equal")
    assert found.reason == words


@pytest.mark.parametrize(("declared", "verdict"), [(480, "pass"), (576, "pass"), (500, "fail")])
def test_memory_at_no_processor_may_be_declared_along_or_not(declared, verdict, monkeypatch):
    """GH200: 480 GiB at the processor and 96 of the GPU, which the kernel has as a node of its own; or CXL."""
    monkeypatch.setattr(f"{__name__}.ORDERED", ORDERED.model_copy(update={"memory_gib": declared}))
    found = of_ordered(memory_gib=480.0, memory_beside_gib=96.0)
    assert found.verdict == verdict, found.reason
    parts = {c.key: c.found for c in found.compared}
    assert parts["memory_gib"] == "480 and 96 at no processor"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"cpu_model": None}, f"cpu_model is not known, {SILVER} declared"),
        ({"cpu_cores": None}, "cpu_cores is not known, 24 declared"),
        ({"memory_gib": None}, "memory_gib is not known, 192 declared"),
        ({"pci": [NIC, {**SWITCHED[0], "above": []}]}, "gpu_root_ports is not known, 1 declared"),
    ],
)
def test_what_is_declared_and_not_known_is_not_confirmed(facts, words):
    found = of_ordered(**facts)
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert words in found.reason


def test_who_declares_no_fabric_port_need_not_name_an_adapter():
    bom = Bom(model="nspawn", gpu_count=0, fabric_port_count=0)
    partly = LAB.model_copy(update={"nodes": (*LAB.nodes[:3], node("gpu2", 14, bom=bom, ports=()))})
    facts = {"fabric_ports": [], "pci": [], "nic_model": ""}
    verdict = judged(one_node("gpu2", **facts), partly, plan_of(partly, ("preflight",)))
    assert next(j for j in criterion(verdict, "pf.bom").judgements if j.subject == "gpu2").verdict == "pass"


def test_a_bom_that_declares_only_a_part_confirms_only_a_part():
    partly = LAB.model_copy(update={"nodes": (*LAB.nodes[:3], node("gpu2", 14, bom=Bom(model="nspawn", gpu_count=0)))})
    verdict = judged(None, partly)
    mine = next(j for j in criterion(verdict, "pf.bom").judgements if j.subject == "gpu2")
    assert (mine.verdict, mine.reason_code) == ("not-measured", "no-bound")
    assert "fabric_port_count, nic_model" in mine.reason
    assert verdict.exit_code == 3


def test_negotiated_rate_of_a_real_port():
    port = Port(interface="fab0", address="10.78.0.14", prefix=24, rate_gbps=10)
    topology = REAL.model_copy(update={"nodes": (*REAL.nodes[:3], node("gpu2", 14, ports=(port,), virtual=None))})
    plan = plan_of(topology)
    ports = [{"interface": "fab0", "operstate": "up", "speed_mbit": 1000}]
    slow = healthy(plan.measurement("facts.gpu2"), facts={**REAL_FACTS, "fabric_ports": ports})
    verdict = judged(lambda m: slow if m.id == "facts.gpu2" else None, topology, plan, facts=REAL_FACTS)
    assert "fab0 runs at 1 Gbit/s, 10 declared" in criterion(verdict, "pf.bom").reason


def test_stack_against_the_release():
    verdict = judged(one_node("gpu1", openmpi="4.0.1"))
    stack = criterion(verdict, "pf.stack")
    assert stack.verdict == "fail"
    assert "openmpi is 4.0.1, 4.1.4 declared" in next(j for j in stack.judgements if j.subject == "gpu1").reason


def test_an_operating_system_that_is_only_shown_is_said_to_be_a_stand_in():
    nodes = tuple(n.model_copy(update={"os_stand_in": "debian 13"}) for n in LAB.nodes)
    stack = criterion(judged(None, LAB.model_copy(update={"nodes": nodes})), "pf.stack")
    assert {j.reason.rpartition("; ")[2] for j in stack.judgements} == {
        "the operating system is a stand-in over debian 13"
    }
    assert all("os debian 12 (stand-in over debian 13); kernel" in str(j.text) for j in stack.judgements)
    assert "stand-in" not in criterion(judged(None, LAB), "pf.stack").judgements[0].reason


def test_the_odd_one_of_a_group_is_named_by_majority():
    topology = lab(("head", "gpu1", "gpu2", "gpu3"))
    verdict = judged(one_node("gpu3", kernel="5.10"), topology, plan_of(topology))
    failed = [j for j in criterion(verdict, "pf.stack").judgements if j.verdict == "fail"]
    assert [j.subject for j in failed] == ["gpu3"]
    assert "kernel is 5.10, gpu1, gpu2 of gpu_servers have 6.1.0" in failed[0].reason
    assert [(f.kind, f.subject) for f in verdict.findings] == [("node", "gpu3")]


def test_of_two_that_differ_both_are_named():
    verdict = judged(one_node("gpu2", kernel="5.10"))
    failed = {j.subject for j in criterion(verdict, "pf.stack").judgements if j.verdict == "fail"}
    assert failed == {"gpu1", "gpu2"}


def test_groups_may_differ_from_each_other():
    assert judged(one_node("head", docker="", kernel="5.10")).exit_code == 0


def test_a_declared_component_that_nobody_looked_at():
    nodes = tuple(n.model_copy(update={"stack": {**STACK, "scheduler": "2.2.15"}}) for n in LAB.nodes)
    stack = criterion(judged(None, LAB.model_copy(update={"nodes": nodes})), "pf.stack")
    assert (stack.verdict, stack.reason_code) == ("not-measured", "missing-metric")
    assert "scheduler" in stack.reason
    assert "scheduler" not in FACTS


def test_path_mtu():
    verdict = judged(spoil("path-mtu", lambda a, b: "gpu1" in (a, b), 1500))
    mtu = criterion(verdict, "pf.mtu")
    assert (mtu.verdict, mtu.reason_code) == ("fail", "not-equal")
    assert "1500 bytes, 9000 wanted" in mtu.reason
    assert [f.subject for f in verdict.findings] == ["gpu1/fab0"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"drift": [{"package": "libnccl2", "found": "2.30", "provisioned": "2.19"}]},
            "libnccl2 is 2.30, 2.19 was provisioned",
        ),
        ({"reboot_pending": ["nouveau is loaded"]}, "a reboot waits: nouveau is loaded"),
    ],
)
def test_a_node_that_left_its_provisioned_state_fails(facts, words):
    stack = criterion(judged(one_node("gpu1", **facts)), "pf.stack")
    assert stack.verdict == "fail"
    assert words in next(j for j in stack.judgements if j.subject == "gpu1").reason
