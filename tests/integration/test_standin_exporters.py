"""The exporters of nodes with EL, on nodes that stand in for EL 9: brought and taken back, twice, with nothing left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import STOOD_IN, Lab, stood_in

from tests.support.recap import recap
from tests.support.snapshot import differences, snapshots

pytestmark = pytest.mark.rest
#: What the exporters need, and themselves. Before it preflight, which every run does.
STAGES = "base,monitoring"


@pytest.fixture(scope="module")
def el(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A head and a GPU server."""
    with stood_in("el9", tmp_path_factory.mktemp("inventory") / "el9", "exporters") as lab:
        yield lab


@pytest.mark.parametrize("time", ["first", "second"])
def test_exporters_of_el_come_and_go_without_a_trace(el: Lab, time: str) -> None:
    before = snapshots(el, STOOD_IN)
    done = el.playbook("--tags", STAGES)
    assert done.returncode == 0, done.stdout[-6000:]
    for node in STOOD_IN:
        assert el.ssh(node, "systemctl is-active elastic-ai-node-exporter.service").strip() == "active"
    again = el.playbook("--tags", STAGES)
    assert {node: counts["changed"] for node, counts in recap(again.stdout).items()} == dict.fromkeys(STOOD_IN, 0), (
        again.stdout[-6000:]
    )
    gone = el.playbook(name="playbooks/teardown.yml")
    assert gone.returncode == 0, gone.stdout[-6000:]
    after = snapshots(el, STOOD_IN)
    assert {node: differences(before[node], after[node]) for node in STOOD_IN} == {node: [] for node in STOOD_IN}
