"""Taking a lab down: in which order, and how long for what does not end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from toolkit.lab import lab as labs
from toolkit.lab import network, nodes
from toolkit.lab.host import Host


class Clock:
    """Time that passes by sleeping, and by looking at a busy machine."""

    def __init__(self) -> None:
        self.now, self.looks = 0.0, 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def module(self) -> SimpleNamespace:
        return SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)

    def look(self) -> None:
        self.now += 1.0
        self.looks += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (nodes, network):
        monkeypatch.setattr(module, "time", made.module())
        monkeypatch.setattr(module.os, "kill", lambda pid, number: None)
    return made


def test_bmcs_end_before_nodes_so_that_none_starts_a_node_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path))
    (tmp_path / "labs/some/nodes/gpu1").mkdir(parents=True)
    did: list[str] = []
    monkeypatch.setattr(labs.network, "stop_services", lambda lab: did.append(f"services of {lab}"))
    monkeypatch.setattr(labs.nodes, "stop", lambda lab, names, host: did.append(f"nodes {names}"))
    monkeypatch.setattr(labs.network, "namespaces_of", lambda name: [])
    monkeypatch.setattr(labs.network, "delete_networks", lambda lab: did.append("networks"))
    assert labs.down("some", lambda _: None)
    assert did == ["services of some", "nodes ['gpu1']", "networks"]
    assert not (tmp_path / "labs/some").exists()


def test_a_process_that_does_not_end_holds_nothing_up_on_a_busy_machine(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    def processes(lab: str, node: str) -> set[int]:
        clock.look()
        return {17}

    monkeypatch.setattr(nodes, "processes", processes)
    monkeypatch.setattr(nodes, "_words", lambda pid: [b"sleep"])
    monkeypatch.setattr(nodes, "remove_cgroups", lambda lab, node: None)
    nodes.stop("x", ["gpu1"], Host(False, "v2", True, 2))
    assert clock.now < nodes.KILLED_WITHIN_S + 5


def test_services_are_gone_when_that_returns(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    there = [[7, 8], [8], []]
    monkeypatch.setattr(network, "_services", lambda lab: there.pop(0))
    network.stop_services("x")
    assert not there


def test_a_service_that_does_not_end_is_not_waited_for_without_end(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    def services(lab: str) -> list[int]:
        clock.look()
        return [7]

    monkeypatch.setattr(network, "_services", services)
    network.stop_services("x")
    assert clock.looks < network.ENDED_WITHIN_S + 5
