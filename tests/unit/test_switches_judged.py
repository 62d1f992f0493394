"""Switches judged in a run: each difference is its own node's, and what was not compared is never a pass."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.site import criterion, hardware, plan_of, result, verdict_of
from tests.support.tool_documents import doc
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.model import Cable, LabLink, Topology
from validation.plan.suites import PlanError

NODES = ("gpu1", "gpu2", "gpu3")
CABLES = tuple(
    Cable(node=node, port="eth1", switch="leaf1", switch_port=f"Eth1/{n}") for n, node in enumerate(NODES, 1)
)


def port(node: str, **more: Any) -> dict[str, Any]:
    return {"switch": "leaf1", "switch_port": f"Eth1/{node[-1]}", "node": node, "port": "eth1", **more}


def difference(
    node: str, what: str = "mtu", words: str = "MTU 1500 is less than the host's 9000 bytes"
) -> dict[str, Any]:
    """As `toolkit switch check` prints it."""
    return {"what": what, "switch": "leaf1", "switch_port": f"Eth1/{node[-1]}", "host": f"{node} eth1", "node": node,
            "words": words, "host_line": "all.yml:3: fabric_mtu: 9000",
            "switch_line": "leaf1:88: mtu 1500"}  # fmt: skip


def report(*differences: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What `toolkit switch check --json` prints of three ports of one switch."""
    read = [{"switch": "leaf1", "system": "sonic", "source": "leaf1"}]
    found: dict[str, Any] = {"schema": "elastic-ai/switch-check/1", "switches": read,
                             "compared": [port(node) for node in NODES], "not_compared": [],
                             "differences": [*differences], "unchecked": [], **changes}  # fmt: skip
    return {"ports": len(found["compared"]), **found}


def printed(said: dict[str, Any], exit_code: int | None = None) -> Any:
    wanted = 1 if said["differences"] else 3 if said["unchecked"] else 0
    return doc("switches", json.dumps(said), {"exit": wanted if exit_code is None else exit_code})


def judged(said: dict[str, Any], cables: tuple[Cable, ...] = CABLES, **more: Any) -> dict[str, Any]:
    """node -> its judgement."""
    site = hardware(NODES).model_copy(update={"cables": cables, "switches": ("leaf1",), **more})
    plan = plan_of(site, ("preflight",))
    samples, facts = parse("switches", printed(said), {})
    results = [result(m, samples, facts=facts) for m in plan.measurements if m.kind == "switches"]
    assert len(results) == 1
    return {str(one.subject): one for one in criterion(verdict_of(site, plan, results), "pf.switch").judgements}


def test_ports_that_agree_pass() -> None:
    found = judged(report())
    assert {name: (one.verdict, one.reason) for name, one in found.items()} == {
        node: ("pass", f"as the switch: eth1 in leaf1 Eth1/{node[-1]}") for node in NODES
    }


def test_a_difference_fails_its_node_alone_with_both_lines() -> None:
    found = judged(report(difference("gpu2"), difference("gpu2", "cnp", "congestion notifications are in a queue")))
    assert {name: one.verdict for name, one in found.items()} == {"gpu1": "pass", "gpu2": "fail", "gpu3": "pass"}
    assert "leaf1 Eth1/2 (gpu2 eth1): MTU 1500 is less" in found["gpu2"].reason
    assert "congestion notifications" in found["gpu2"].reason
    assert "host: all.yml:3: fabric_mtu: 9000; switch: leaf1:88: mtu 1500" in found["gpu2"].text


def test_a_port_that_was_not_compared_is_no_pass_and_the_others_are_judged() -> None:
    why = "leaf1 was not read"
    said = report(compared=[port("gpu1")], not_compared=[port("gpu2", why=why)], unchecked=["leaf1: does not answer"])
    found = judged(said)
    assert {name: one.verdict for name, one in found.items()} == {
        "gpu1": "pass", "gpu2": "not-measured", "gpu3": "not-measured",
    }  # fmt: skip
    assert found["gpu2"].reason == f"leaf1 Eth1/2 (gpu2 eth1): {why}"
    assert found["gpu3"].reason == "no port of gpu3 is in the map of cables"


def test_without_a_map_no_node_is_blamed_and_the_differences_are_there() -> None:
    one = {**difference("gpu2"), "host": "", "node": ""}
    said = report(one, compared=[{**port(node), "node": "", "port": ""} for node in NODES])
    found = judged(said, cables=())
    assert {one.verdict for one in found.values()} == {"not-measured"}
    assert all("no map of cables" in one.reason and "MTU 1500" in one.reason for one in found.values())


def test_in_a_lab_the_switch_is_called_emulated() -> None:
    found = judged(report(), lab_link=LabLink(rate_gbps=1.0, rtt_max_us=2000.0))
    assert all(one.reason.endswith("(an emulated switch)") for one in found.values())


def test_a_site_without_switches_is_not_measured_and_says_why() -> None:
    plan = plan_of(hardware(NODES), ("preflight",))
    assert not [m for m in plan.measurements if m.kind == "switches"]
    left = [one for one in plan.left_out if "pf.switch" in one.criteria]
    assert [one.why for one in left] == ["no switch is declared (variable switches)"]


def test_infiniband_has_no_such_port() -> None:
    site: Topology = hardware(NODES).model_copy(update={"switches": ("leaf1",)})
    try:
        plan = plan_of(site, ("preflight",), fabric="ib-edr")
    except PlanError as fault:  # pragma: no cover - a fabric that these nodes can't have
        pytest.fail(str(fault))
    assert not [m for m in plan.measurements if m.kind == "switches"]


@pytest.mark.parametrize(
    ("said", "exit_code", "words"),
    [
        (report(ports=2), None, "2 ports were compared, and 3 are listed"),
        (report(difference("gpu9")), None, "Eth1/9 differs, and was not compared"),
        (report(), 1, "ended with 1, its report is one of 0"),
        (report(difference("gpu2")), 0, "ended with 0, its report is one of 1"),
        (report(unchecked=["leaf2: does not answer"]), 0, "ended with 0, its report is one of 3"),
    ],
)
def test_a_report_that_contradicts_itself_is_no_measurement(
    said: dict[str, Any], exit_code: int | None, words: str
) -> None:
    with pytest.raises(ParseError, match=words):
        parse("switches", printed(said, exit_code), {})
