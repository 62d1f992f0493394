"""A node's power switched by its BMC: the emulated BMC over TLS, and a node that boots when its power is switched.

ssh is replaced: what the node says of its boots is constructed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bmcs import PASSWORD, bmcs, inventory
from tests.support.site import lab, plan_of, result, results_of, verdict_of
from toolkit.lab.bmc.constructed import LOCKDOWN, MANAGER, RESET, SYSTEM
from toolkit.lab.bmc.emulated import EmulatedBmc
from validation.kinds import parse
from validation.measures.recovery import recovery_probe
from validation.model import Bmc, CriterionVerdict
from validation.probes import recovery_steps
from validation.probes.controller import INVENTORY
from validation.probes.tool import Ran

pytestmark = pytest.mark.computes
RESETS = f"POST {RESET['target']}"


class Node:
    """A node whose power its BMC switches, and what it says by ssh."""

    def __init__(self) -> None:
        self.boots, self.switched, self.asked = 1, list[str](), list[str]()
        self.job, self.gpus, self.serial = "", ["GPU-1", "GPU-2"], ""

    def state(self) -> str:
        return "On"

    def reset(self, kind: str) -> None:
        self.switched.append(kind)
        self.boots += 1

    def ask(self, ssh: list[str], words: str, timeout_s: float = 0) -> Ran:
        self.asked.append(words)
        gpus = "".join(f"EAI gpu {one}\n" for one in self.gpus)
        said = {
            "product_serial": self.serial, "squeue": self.job, "sinfo": "idle",
            "EAI boot": f"EAI boot {self.boots}\nEAI system running\nEAI link fab0 1\n{gpus}EAI end\n",
        }  # fmt: skip
        return Ran(["ssh"], 0, next((text for mark, text in said.items() if mark in words), ""), "")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node()
    monkeypatch.setattr(recovery_steps, "ask", made.ask)
    monkeypatch.setattr(recovery_steps, "told", lambda words: 0)
    monkeypatch.setattr(recovery_steps, "POLL_S", 0.01)
    return made


@pytest.fixture
def bmc(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedBmc]:
    with bmcs(tmp_path, ["gpu1"]) as there:
        monkeypatch.setenv(INVENTORY, str(inventory(tmp_path, there)))
        monkeypatch.setenv("ELASTIC_AI_BMC_PASSWORD", PASSWORD)
        there["gpu1"].power = node
        yield there["gpu1"]


def cycled(times: int = 2) -> Any:
    words = ["ssh", "root@gpu1"]
    return recovery_probe.probe(recovery_probe.Asked("cycles", "gpu1", words, ["ssh", "root@head"], ["fab0"], times))


def judged(doc: Any) -> CriterionVerdict:
    """Of a lab with one server that has a BMC."""
    topology = lab()
    own = Bmc(address="127.0.0.1", port=443, user="acceptance", ca=None, fingerprint=None, bios={})
    nodes = tuple(one.model_copy(update={"bmc": own}) if one.name == "gpu1" else one for one in topology.nodes)
    topology = topology.model_copy(update={"nodes": nodes})
    plan = plan_of(topology, ("recovery",), options={"power_cycles": 2})
    assert [m.id for m in plan.measurements] == ["recovery-cycles.gpu1"]
    assert any("declares no BMC (host variable bmc) of gpu2" in left.why for left in plan.left_out)
    samples, facts = parse("recovery", doc, plan.measurements[0].params)
    results = results_of(plan, lambda m: result(m, samples, facts=facts))
    (found,) = (c for c in verdict_of(topology, plan, results).criteria if c.id == "rc.power")
    return found


def test_power_is_cycled_as_often_as_was_allowed_and_boots_are_judged(node: Node, bmc: EmulatedBmc) -> None:
    doc = cycled()
    assert doc["error"] is None
    assert node.switched == ["PowerCycle", "PowerCycle"]
    assert bmc.writes == [RESETS, RESETS]
    assert any("state=drain" in words for words in node.asked)
    assert not any("systemctl reboot" in words for words in node.asked)
    assert PASSWORD not in json.dumps(doc)
    found = judged(doc)
    assert found.verdict == "pass"
    assert found.judgements[0].text.startswith("PowerCycle by its BMC: 2 of 2 boots the same")


def test_what_a_boot_lacks_after_a_power_loss_is_named(node: Node, bmc: EmulatedBmc) -> None:
    whole = node.reset

    def reset(kind: str) -> None:
        whole(kind)
        node.gpus = ["GPU-1"]

    node.reset = reset  # type: ignore[method-assign]
    found = judged(cycled())
    assert found.verdict == "fail"
    assert "boot 1: GPU GPU-2 is gone" in found.judgements[0].reason


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("job", "gpu1: 17 runs there; nothing was rebooted"),
        ("serial", "gpu1: its BMC: it is that of EAT0001, and the node is EAT0002; correct bmc in the inventory"),
        ("lockdown", "gpu1: its BMC: it refuses PowerCycle: status 403, LOC001"),
        ("none", "gpu1: its BMC: it offers no PowerCycle and no ForceRestart"),
        ("read only", "gpu1: its BMC: it refuses PowerCycle: status 405"),
        ("password", "gpu1: its BMC: it refuses the login of user acceptance"),
    ],
)
def test_where_it_may_not_be_nothing_is_switched(
    node: Node, bmc: EmulatedBmc, case: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case == "job":
        node.job = "17"
    elif case == "serial":
        node.serial = "EAT0002"
    elif case == "lockdown":
        bmc.docs[f"{MANAGER}/Oem/Dell/DellAttributes/iDRAC.Embedded.1"]["Attributes"][LOCKDOWN] = "Enabled"
    elif case == "none":
        bmc.docs[SYSTEM]["Actions"] = {}
    elif case == "read only":
        bmc.power = None
    else:
        monkeypatch.setenv("ELASTIC_AI_BMC_PASSWORD", "other")
    doc = cycled()
    assert str(doc["error"]).startswith(words), doc["error"]
    assert node.switched == []


def test_a_server_that_is_its_own_and_one_with_restart_alone_are_switched(node: Node, bmc: EmulatedBmc) -> None:
    node.serial = bmc.docs[SYSTEM]["SKU"]
    bmc.docs[SYSTEM]["Actions"]["#ComputerSystem.Reset"]["ResetType@Redfish.AllowableValues"] = ["On", "ForceRestart"]
    assert cycled(1)["error"] is None
    assert node.switched == ["ForceRestart"]


def test_an_emulated_bmc_takes_the_types_that_it_lists_and_one_that_fits(node: Node, bmc: EmulatedBmc) -> None:
    token = bmc.answer("POST", "/redfish/v1/SessionService/Sessions", "", json.dumps(
        {"UserName": "acceptance", "Password": PASSWORD}).encode())[2]["X-Auth-Token"]  # fmt: skip

    def post(body: bytes) -> int:
        return bmc.answer("POST", RESET["target"], token, body)[0]

    assert [post(b) for b in (b"", b"[]", b'{"ResetType": "Nmi"}', b'{"ResetType": "On"}')] == [400, 400, 400, 409]
    assert bmc.answer("POST", RESET["target"], "", b'{"ResetType": "ForceOff"}')[0] == 401
    assert node.switched == []
    assert post(b'{"ResetType": "ForceOff"}') == 204
    assert node.switched == ["ForceOff"]
