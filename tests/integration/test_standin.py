"""Nodes that stand in for another system: site.yml takes that system's way on them, twice, and leaves no trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import STOOD_IN, Lab, stood_in, toolkit

from tests.support.recap import recap
from tests.support.snapshot import differences, snapshots
from toolkit.lab.sources import RELEASES

pytestmark = pytest.mark.rest
SYSTEMS = sorted(key for key, release in RELEASES.items() if release.over)


@pytest.fixture(params=SYSTEMS)
def standing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A head and a GPU server."""
    with stood_in(str(request.param), tmp_path / "inventory", str(request.param)) as lab:
        yield lab


def test_a_system_that_is_stood_in_for_is_provisioned_twice_and_torn_down(standing: Lab, tmp_path: Path) -> None:
    title, over = RELEASES[standing.name].title, RELEASES[standing.name].base.title
    told = json.loads(toolkit("lab", "status", "--name", standing.name, "--json").stdout)
    assert (told["os"], told["over"]) == (title, over)
    rpms = standing.name.startswith("el")
    holds = "cat /etc/dnf/plugins/versionlock.list" if rpms else "apt-mark showhold"
    held = standing.ssh("gpu1", holds)
    assert rpms or "linux-generic-hwe" in held
    before = snapshots(standing, STOOD_IN)

    first = standing.playbook()
    assert first.returncode == 0, first.stdout[-6000:]
    second = standing.playbook()
    assert second.returncode == 0, second.stdout[-6000:]
    assert {host: counts["changed"] for host, counts in recap(second.stdout).items()} == dict.fromkeys(STOOD_IN, 0)
    # The installer asks for DHCP on this port, by name on one node and by a wildcard, or nothing, on the other.
    for node in STOOD_IN:
        assert "inet 10.78." in standing.ssh(node, "ip -4 -o addr show dev fab0")
    assert f"operating system ({over})" in standing.ssh("gpu1", "cat /etc/elastic-ai/provisioned.json")

    runs = tmp_path / "runs"
    done = toolkit("validate", "-i", standing.inventory, "--fabric", "tcp10", "--suite", "compute", "--runs-dir", runs)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert f"stand-in over {over}" in next(runs.glob("*/report.html")).read_text()
    checked = toolkit("check", "-i", standing.inventory)  # judged last, for it hides nothing of the teardown

    gone = standing.playbook(name="playbooks/teardown.yml")
    assert gone.returncode == 0, gone.stdout[-6000:]
    assert standing.ssh("gpu1", holds) == held
    after = snapshots(standing, STOOD_IN)
    assert {node: differences(before[node], after[node]) for node in STOOD_IN} == {node: [] for node in STOOD_IN}
    assert checked.returncode == 0, checked.stdout + checked.stderr
