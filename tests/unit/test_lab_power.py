"""Power of a lab's nodes: cut, given again, and switched by the node's BMC in order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from toolkit.errors import LabError
from toolkit.lab import nodes, power
from toolkit.lab.spec import LabSpec, NodeSpec, make_spec


class Running:
    """Processes of one node, and what was done to them in turn."""

    def __init__(self) -> None:
        self.alive, self.did, self.booted = {17}, list[str](), threading.Event()

    def cut(self, spec: LabSpec, node: NodeSpec) -> None:
        self.alive = set()
        self.did.append("cut")

    def boot(self, spec: LabSpec, node: NodeSpec, host: object) -> None:
        self.alive = {18}
        self.did.append("boot")
        self.booted.set()


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path))
    made = Running()
    monkeypatch.setattr(nodes, "processes", lambda lab, node: made.alive)
    monkeypatch.setattr(nodes, "boot", made.boot)
    monkeypatch.setattr(power, "cut", made.cut)
    monkeypatch.setattr(power, "OFF_S", 0.0)
    return made


@pytest.mark.parametrize(
    ("kind", "did"),
    [("PowerCycle", ["cut", "boot"]), ("ForceRestart", ["cut", "boot"]), ("ForceOff", ["cut"]), ("On", [])],
)
def test_a_reset_does_what_its_type_says(running: Running, kind: str, did: list[str]) -> None:
    spec = make_spec("x", 3, 4, 1)
    switch = power.Switch(spec, spec.node("gpu1"))
    assert switch.state() == "On"
    switch._do(kind)
    assert running.did == did
    assert switch.state() == ("Off" if kind == "ForceOff" else "On")


def test_a_node_that_is_off_is_switched_on_by_another_thread(running: Running) -> None:
    running.alive = set()
    spec = make_spec("x", 3, 4, 1)
    power.Switch(spec, spec.node("gpu1")).reset("On")
    assert running.booted.wait(30)
    assert running.did == ["boot"]


def test_a_node_is_not_started_beside_what_is_left_of_it(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "GONE_S", 0.0)
    spec = make_spec("x", 3, 4, 1)
    with pytest.raises(LabError, match="gpu1 still runs"):
        power.on(spec, spec.node("gpu1"))
    assert running.did == []
