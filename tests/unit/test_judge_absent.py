"""What a node's facts lack, or say oddly, confirms nothing: bill of materials, stack, cards (D5, D6)."""

from __future__ import annotations

from typing import Any

import pytest
from engine_case import BOM, FACTS, LINK, REAL, REAL_FACTS, REAL_PCI, criterion, node, plan_of, results_of, verdict_of

from validation.judging.hardware import cards
from validation.model import Bom, Port, Topology

GPU, NIC = REAL_PCI[1], REAL_PCI[0]


def one(bom: Bom = BOM, ports: tuple[str, ...] = ("fab0",), rate_gbps: float | None = 10) -> Topology:
    """A real site whose gpu2 declares these ports and cards."""
    mine = tuple(
        Port(interface=p, address=f"10.78.{i}.14", prefix=24, rate_gbps=rate_gbps) for i, p in enumerate(ports)
    )
    return REAL.model_copy(update={"nodes": (*REAL.nodes[:3], node("gpu2", 14, ports=mine, bom=bom, virtual=None))})


def of_gpu2(id_: str, facts: dict[str, Any], topology: Topology | None = None) -> Any:
    """gpu2's judgement with these facts; a fact of None is dropped."""
    topology = topology or one()
    plan = plan_of(topology, ["preflight"])
    found = []
    for r in results_of(plan, facts=REAL_FACTS):
        if r.measurement == "facts.gpu2":
            r = r.model_copy(update={"facts": {k: v for k, v in {**r.facts, **facts}.items() if v is not None}})
        found.append(r)
    verdict = verdict_of(topology, plan, found)
    return next(j for j in criterion(verdict, id_).judgements if j.subject == "gpu2")


# --- pf.bom -----------------------------------------------------------------------------------------------------------


def test_a_port_that_is_up_at_its_rate_is_as_declared() -> None:
    assert of_gpu2("pf.bom", {}).verdict == "pass"
    assert of_gpu2("pf.bom", {}, one(rate_gbps=None)).verdict == "pass"


@pytest.mark.parametrize("rate_gbps", [10, None])
@pytest.mark.parametrize(
    ("lines", "verdict", "words"),
    [
        (["fab0=down,mtu=1500,speed=-1"], "fail", "fab0 is down"),
        (["fab0=lowerlayerdown,mtu=9000,speed=10000"], "fail", "fab0 is lowerlayerdown"),
        (["fab0=up,mtu=9000,speed="], "not-measured", "the speed of fab0 is not known"),
        (["fab0=up,mtu=9000,speed=-1"], "not-measured", "the speed of fab0 is not known"),
        (["fab0=up,mtu=9000,speed=0"], "not-measured", "the speed of fab0 is not known"),
        (["fab0=up,mtu=9000,speed=4294967295"], "not-measured", "the speed of fab0 is not known"),
        (["fab0=up,mtu=9000,speed=fast"], "not-measured", "fab0=up,mtu=9000,speed=fast"),
        (["fab0=unknown,mtu=9000,speed=10000"], "not-measured", "fab0 is unknown"),
        (["fab0=,mtu=9000,speed=10000"], "not-measured", "fab0=,mtu"),
        (["eth7=up,mtu=9000,speed=10000"], "not-measured", "nothing of fab0"),
        (["nonsense"], "not-measured", "nonsense"),
        (["fab0=up,mtu=9000,speed=10000", "fab0=up,mtu=9000,speed=1000"], "not-measured", "fab0 stands there twice"),
    ],
)
def test_d5_each_declared_port_must_be_there_up_and_of_a_known_speed(
    lines: list[str], verdict: str, words: str, rate_gbps: float | None
) -> None:
    """Sysfs says -1 or nothing exactly when the link is down (or 2^32-1, in older kernels)."""
    for bom in (BOM, BOM.model_copy(update={"fabric_port_count": len(lines)})):
        found = of_gpu2("pf.bom", {"fabric_ports": lines}, one(bom, rate_gbps=rate_gbps))
        assert found.verdict in (verdict, "fail"), found.reason
        if found.verdict == verdict:
            assert words in found.reason


def test_d5_garbage_is_no_port() -> None:
    found = of_gpu2("pf.bom", {"fabric_ports": ["fab0=up,mtu=9000,speed=10000", "x"]}, one(BOM))
    assert found.verdict == "not-measured"
    two = one(BOM.model_copy(update={"fabric_port_count": 2}), rate_gbps=None)
    assert of_gpu2("pf.bom", {"fabric_ports": ["fab0=up,mtu=9000,speed=10000", "x"]}, two).verdict == "fail"


def test_d5_the_second_port_is_looked_at_too() -> None:
    two = one(BOM.model_copy(update={"fabric_port_count": 2}), ports=("fab0", "fab1"))
    up = "fab0=up,mtu=9000,speed=10000"
    assert of_gpu2("pf.bom", {"fabric_ports": [up, "fab1=down,mtu=9000,speed=-1"]}, two).verdict == "fail"
    assert of_gpu2("pf.bom", {"fabric_ports": [up, up.replace("fab0", "fab1")]}, two).verdict == "pass"


@pytest.mark.parametrize("key", ["model", "gpu_count", "gpu_model", "nic_model", "fabric_ports"])
def test_a_fact_that_is_missing_confirms_no_bill_of_materials(key: str) -> None:
    assert of_gpu2("pf.bom", {key: None}).verdict == "not-measured"


# --- pf.stack ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["os", "kernel", "driver", "nccl", "stack_release", "drift", "reboot_pending"])
def test_a_component_that_nobody_looked_at_confirms_no_stack(key: str) -> None:
    assert of_gpu2("pf.stack", {}).verdict == "pass"
    found = of_gpu2("pf.stack", {key: None})
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric"), found.reason
    assert key in found.reason


def test_a_component_that_no_node_of_a_group_speaks_of_is_no_equal_one() -> None:
    plan = plan_of(REAL, ["preflight"])
    found = [
        r.model_copy(update={"facts": {k: v for k, v in r.facts.items() if k != "kernel"}})
        for r in results_of(plan, facts=REAL_FACTS)
    ]
    assert criterion(verdict_of(REAL, plan, found), "pf.stack").verdict == "not-measured"


@pytest.mark.parametrize("key", ["virt", "lab", "stand_ins"])
def test_a_node_that_does_not_say_whether_it_is_real_is_never_accepted(key: str) -> None:
    from test_judge import real_results, waive_all

    plan = plan_of(REAL)
    found = [
        r.model_copy(update={"facts": {k: v for k, v in r.facts.items() if k != key}})
        if r.measurement == "facts.gpu2"
        else r
        for r in real_results(plan)
    ]
    verdict = verdict_of(REAL, plan, found, waive_all(verdict_of(REAL, plan, real_results(plan))))
    assert verdict.sign_off == "INCOMPLETE"
    assert any("facts.gpu2" in note and key in note for note in verdict.notes)


# --- pf.pcie, pf.numa -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", ["pf.pcie", "pf.numa"])
@pytest.mark.parametrize(
    ("pci", "count", "words"),
    [
        ([NIC, GPU], 4, "1 of 4 GPUs"),
        ([NIC, GPU, GPU, GPU, GPU], 4, "1 of 4 GPUs"),
        ([NIC], 1, "0 of 1 GPUs"),
        ([GPU], 1, "nothing of fab0"),
        ([NIC.replace("fab0", "eth9"), GPU], 1, "nothing of fab0"),
        ([NIC, NIC.replace("0000:3b", "0000:5e"), GPU], 1, "fab0 stands there twice"),
        (["nic", NIC, GPU], 1, "nic"),
        (["tpu - 0000:18:00.0 speed=8.0", NIC, GPU], 1, "tpu - 0000:18:00.0"),
        ([NIC, GPU], None, "how many GPUs"),
    ],
)
def test_d6_what_was_not_seen_is_no_pass(id_: str, pci: list[str], count: int | None, words: str) -> None:
    found = of_gpu2(id_, {"pci": pci, "gpu_count": count})
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric"), found.reason
    assert words in found.reason


def test_d6_a_declared_gpu_must_be_seen_too() -> None:
    declared = one(BOM.model_copy(update={"gpu_count": 2, "gpu_model": "A100"}))
    found = of_gpu2("pf.pcie", {"gpu_count": 1, "gpu_model": "A100"}, declared)
    assert found.verdict == "not-measured"
    assert "1 of 2 GPUs" in found.reason


@pytest.mark.parametrize("value", ["nan", "Unknown", "-8.0", "inf", "8.0.0", "0"])
@pytest.mark.parametrize("key", [" speed=8.0", " width=16", "max_speed=8.0", "max_width=16"])
def test_d6_a_link_of_no_number_is_no_link(key: str, value: str) -> None:
    name, _, _ = key.partition("=")
    found = of_gpu2("pf.pcie", {"pci": [NIC.replace(key, f"{name}={value}"), GPU], "gpu_count": 1})
    assert found.verdict == "not-measured", found.reason
    assert "fab0" in found.reason


def test_d6_a_link_above_its_maximum_contradicts_itself() -> None:
    found = of_gpu2("pf.pcie", {"pci": [NIC.replace(" speed=8.0", " speed=16.0"), GPU], "gpu_count": 1})
    assert found.verdict == "not-measured"
    assert "above what it is rated" in found.reason


def test_d6_a_malformed_line_gives_no_traceback_in_the_report_either() -> None:
    assert cards(["nic", "", f"gpu - 0000:18:00.0 {LINK}", "nic fab0 none", "gpu"])[0].address == "0000:18:00.0"
    assert len(cards(["nic", "", f"gpu - 0000:18:00.0 {LINK}", "nic fab0 none", "gpu"])) == 2
    assert cards([f"nic fab0 0000:3b:00.0 {LINK} speed=Unknown"])[0].speed is None


def test_healthy_cards_of_a_node_with_gpus_pass() -> None:
    for id_ in ("pf.pcie", "pf.numa"):
        assert of_gpu2(id_, {"gpu_count": 1}).verdict == "pass"
    assert "nccl" in FACTS
