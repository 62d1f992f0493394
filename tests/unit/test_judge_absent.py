"""What a node's facts lack, or say oddly, confirms nothing: bill of materials, stack, cards (D5, D6)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.site import (
    BOM,
    FACTS,
    GPU,
    NIC,
    REAL,
    REAL_FACTS,
    criterion,
    node,
    plan_of,
    results_of,
    verdict_of,
    with_facts,
)
from tests.support.tool_documents import doc
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.model import Bom, Port, Topology

UP: dict[str, Any] = {"interface": "fab0", "operstate": "up", "mtu": 9000, "speed_mbit": 10000}


def one(bom: Bom = BOM, ports: tuple[str, ...] = ("fab0",), rate_gbps: float | None = 10) -> Topology:
    """A real site whose gpu2 declares these ports and cards."""
    mine = tuple(
        Port(interface=p, address=f"10.78.{i}.14", prefix=24, rate_gbps=rate_gbps) for i, p in enumerate(ports)
    )
    return REAL.model_copy(update={"nodes": (*REAL.nodes[:3], node("gpu2", 14, ports=mine, bom=bom, virtual=None))})


def of_gpu2(id_: str, facts: dict[str, Any] | None, topology: Topology | None = None) -> Any:
    """gpu2's judgement with these facts; None: its result has no facts at all."""
    topology = topology or one()
    plan = plan_of(topology, ["preflight"])
    found = []
    for r in results_of(plan, facts=REAL_FACTS):
        if r.measurement == "facts.gpu2":
            r = with_facts(r, **facts) if facts is not None else r.model_copy(update={"facts": {}})
        found.append(r)
    verdict = verdict_of(topology, plan, found)
    return next(j for j in criterion(verdict, id_).judgements if j.subject == "gpu2")


# --- pf.bom -----------------------------------------------------------------------------------------------------------


def test_a_port_that_is_up_at_its_rate_is_as_declared() -> None:
    assert of_gpu2("pf.bom", {}).verdict == "pass"
    assert of_gpu2("pf.bom", {}, one(rate_gbps=None)).verdict == "pass"


@pytest.mark.parametrize("rate_gbps", [10, None])
@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({"operstate": "down", "speed_mbit": None}, "fail", "fab0 is down"),
        ({"operstate": "lowerlayerdown"}, "fail", "fab0 is lowerlayerdown"),
        ({"speed_mbit": None}, "not-measured", "the speed of fab0 is not known"),
        ({"operstate": "unknown"}, "not-measured", "fab0 is unknown"),
        ({"interface": "eth7"}, "not-measured", "nothing of fab0"),
    ],
)
def test_d5_each_declared_port_must_be_there_up_and_of_a_known_speed(
    change: dict[str, Any], verdict: str, words: str, rate_gbps: float | None
) -> None:
    found = of_gpu2("pf.bom", {"fabric_ports": [{**UP, **change}]}, one(rate_gbps=rate_gbps))
    assert found.verdict == verdict, found.reason
    assert words in found.reason


def test_d5_the_second_port_is_looked_at_too() -> None:
    two = one(BOM.model_copy(update={"fabric_port_count": 2}), ports=("fab0", "fab1"))
    down = {"interface": "fab1", "operstate": "down"}
    assert of_gpu2("pf.bom", {"fabric_ports": [UP, down]}, two).verdict == "fail"
    assert of_gpu2("pf.bom", {"fabric_ports": [UP, {**UP, "interface": "fab1"}]}, two).verdict == "pass"


def test_each_part_is_handed_over_as_declared_and_as_found() -> None:
    found = of_gpu2("pf.bom", {"model": "R740", "fabric_ports": [{**UP, "speed_mbit": 1000}]})
    parts = {c.key: (c.declared, c.found, c.equal) for c in found.compared}
    assert parts["model"] == ("nspawn", "R740", False)
    assert parts["gpu_model"] == ("", "", True)  # who declares no GPU need not name its model
    assert parts["fabric_port_rate"] == ("10 Gbit/s", "1 Gbit/s", False)
    assert parts["virt"] == (None, "none", None)
    stack = {c.key: (c.declared, c.found, c.equal) for c in of_gpu2("pf.stack", {"os": "debian 13"}).compared}
    assert stack["os"] == ("debian 12", "debian 13", False)
    assert stack["kernel"] == (None, "6.1.0", None)


# --- no facts, and facts that cannot be ---------------------------------------------------------------------------


@pytest.mark.parametrize("id_", ["pf.bom", "pf.stack", "pf.pcie", "pf.numa"])
def test_a_result_without_facts_confirms_nothing(id_: str) -> None:
    found = of_gpu2(id_, None)
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric"), found.reason
    assert "facts.gpu2" in found.reason


def test_a_node_that_does_not_say_whether_it_is_real_is_never_accepted() -> None:
    from tests.support.site import real_results, waive_all

    plan = plan_of(REAL)
    found = [r.model_copy(update={"facts": {}}) if r.measurement == "facts.gpu2" else r for r in real_results(plan)]
    verdict = verdict_of(REAL, plan, found, waive_all(verdict_of(REAL, plan, real_results(plan))))
    assert verdict.sign_off == "INCOMPLETE"
    assert any("facts.gpu2" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("fabric_ports", ["fab0=up,mtu=9000,speed=10000"], "fabric_ports.0"),
        ("fabric_ports", [{**UP, "operstate": ""}], "fabric_ports.0.operstate"),
        ("fabric_ports", [{**UP, "speed_mbit": "fast"}], "fabric_ports.0.speed_mbit"),
        ("fabric_ports", [{**UP, "speed_mbit": 0}], "fabric_ports.0.speed_mbit"),
        ("fabric_ports", [{**UP, "speed_mbit": -1}], "fabric_ports.0.speed_mbit"),
        ("fabric_ports", [UP, {**UP, "speed_mbit": 1000}], "fabric_ports: duplicate fab0"),
        ("pci", [{**NIC, "what": "tpu"}], "pci.0.what"),
        ("pci", [NIC, GPU, GPU], "pci: duplicate gpu 0000:18:00.0"),
        ("gpu_count", None, "gpu_count"),
        ("virt", "", "virt"),
        ("kernel", "", "kernel"),
        ("kernel", ["6.1"], "kernel"),
        ("drift", ["libnccl2 is 2.30, 2.19 was provisioned"], "drift.0"),
        ("odd", 1, "odd"),
    ],
)
def test_facts_that_cannot_be_are_refused_with_their_field(key: str, value: Any, field: str) -> None:
    with pytest.raises(ParseError, match=field):
        parse("facts", doc("facts", facts={**FACTS, key: value}))


@pytest.mark.parametrize("value", [float("nan"), "Unknown", -8.0, float("inf"), "8.0", 0])
@pytest.mark.parametrize("end", ["link", "card"])
@pytest.mark.parametrize("key", ["gt_s", "lanes"])
def test_d6_a_link_of_no_number_is_no_link(end: str, key: str, value: Any) -> None:
    with pytest.raises(ParseError, match=rf"pci\.0\.{end}\.{key}"):
        parse("facts", doc("facts", facts={**FACTS, "pci": [{**NIC, end: {key: value}}]}))


# --- pf.pcie, pf.numa -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", ["pf.pcie", "pf.numa"])
@pytest.mark.parametrize(
    ("pci", "count", "words"),
    [
        ([NIC, GPU], 4, "1 of 4 GPUs"),
        ([NIC], 1, "0 of 1 GPU"),
        ([GPU], 1, "nothing of fab0"),
        ([{**NIC, "interface": "eth9"}, GPU], 1, "nothing of fab0"),
        ([NIC, {**NIC, "address": "0000:5e:00.0"}, GPU], 1, "fab0 stands there twice"),
    ],
)
def test_d6_what_was_not_seen_is_no_pass(id_: str, pci: list[Any], count: int, words: str) -> None:
    found = of_gpu2(id_, {"pci": pci, "gpu_count": count})
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric"), found.reason
    assert words in found.reason


def test_d6_a_declared_gpu_must_be_seen_too() -> None:
    declared = one(BOM.model_copy(update={"gpu_count": 2, "gpu_model": "A100"}))
    found = of_gpu2("pf.pcie", {"gpu_count": 1, "gpu_model": "A100"}, declared)
    assert found.verdict == "not-measured"
    assert "1 of 2 GPUs" in found.reason


@pytest.mark.parametrize("end", ["link", "card"])
@pytest.mark.parametrize("key", ["gt_s", "lanes"])
def test_d6_a_link_of_which_a_part_is_not_known_is_no_pass(end: str, key: str) -> None:
    found = of_gpu2("pf.pcie", {"pci": [{**NIC, end: {**NIC[end], key: None}}, GPU], "gpu_count": 1})
    assert found.verdict == "not-measured", found.reason
    assert "fab0" in found.reason


def test_d6_a_link_above_its_maximum_contradicts_itself() -> None:
    found = of_gpu2("pf.pcie", {"pci": [{**NIC, "link": {"gt_s": 16.0, "lanes": 16}}, GPU], "gpu_count": 1})
    assert found.verdict == "not-measured"
    assert "above what it is rated" in found.reason


def test_healthy_cards_of_a_node_with_gpus_pass() -> None:
    for id_ in ("pf.pcie", "pf.numa"):
        assert of_gpu2(id_, {"gpu_count": 1}).verdict == "pass"
