"""Power of a lab's nodes: cut, given again, and switched by the node's BMC in order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from toolkit.errors import LabError
from toolkit.lab import lab, network, nodes, power
from toolkit.lab.bmc import rack
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
    spec = made_lab()
    rack.folder(spec).mkdir(parents=True)
    rack.write(spec, spec.node("gpu1"), 512)
    return made


def made_lab() -> LabSpec:
    return make_spec("x", 3, 4, 1)


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


def test_a_node_that_is_taken_down_during_a_power_cycle_is_not_started_again(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = made_lab()
    node = spec.node("gpu1")
    monkeypatch.setattr(power.time, "sleep", lambda seconds: rack.remove(spec, node))
    power.Switch(spec, node)._do("PowerCycle")
    assert running.did == ["cut"]


def test_who_takes_a_node_or_lab_down_waits_for_a_start_that_began(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, went_on = made_lab(), threading.Event()
    node, told = spec.node("gpu1"), list[str]()

    def boot(spec: LabSpec, node: NodeSpec, host: object) -> None:
        running.booted.set()
        went_on.wait(30)
        running.alive = {18}
        told.append("started")

    def removed() -> None:
        rack.remove(spec, node)
        told.append("removed")

    def stopped(name: str) -> None:
        told.append("ended")

    monkeypatch.setattr(nodes, "boot", boot)
    monkeypatch.setattr(network, "stop_services", stopped)
    monkeypatch.setattr(nodes, "stop", lambda *words: None)
    monkeypatch.setattr(network, "delete_networks", lambda name: None)
    monkeypatch.setattr(network, "namespaces_of", lambda name: ["x"])
    monkeypatch.setattr(nodes, "unmount", lambda home: None)
    power.Switch(spec, node).reset("PowerCycle")
    assert running.booted.wait(30)
    for end in (removed, lambda: lab.down("x", lambda words: None)):
        other = threading.Thread(target=end, daemon=True)
        other.start()
        if end is removed:
            other.join(0.2)
            assert told == []
            went_on.set()
        other.join(30)
    assert told == ["started", "removed", "ended"]


def test_a_node_is_not_started_beside_what_is_left_of_it(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "GONE_S", 0.0)
    spec = make_spec("x", 3, 4, 1)
    with pytest.raises(LabError, match="gpu1 still runs"):
        power.on(spec, spec.node("gpu1"))
    assert running.did == []
