"""A small site on nodes that stand in for Ubuntu 24.04: its way through most stages, twice, and back without a trace.

What of site.yml is here takes a few minutes beside other work; test_standin.py has all of it, for every system.
"""

from __future__ import annotations

from pathlib import Path

from conftest import STOOD_IN, stood_in

from tests.support.recap import recap
from tests.support.snapshot import differences, snapshots

SYSTEM = "ubuntu2404"
#: Without pool and monitoring, which install the most, and take the same way as in the lab of Debian.
STAGES = "preflight,base,fabric,gpu,containers,remoting"


def test_most_stages_of_a_site_run_twice_on_ubuntu_and_leave_no_trace(tmp_path: Path) -> None:
    with stood_in(SYSTEM, tmp_path / "inventory", "small") as lab:
        held = lab.ssh("gpu1", "apt-mark showhold")
        assert "linux-generic-hwe" in held
        before = snapshots(lab, STOOD_IN)

        first = lab.playbook("--tags", STAGES)
        assert first.returncode == 0, first.stdout[-6000:]
        assert all(counts["changed"] for counts in recap(first.stdout).values()), "nothing was done"
        record = lab.ssh("gpu1", "cat /etc/netplan/*.yaml; ip -4 -o addr show dev fab0; apt-mark showhold")
        assert "inet 10.78." in record
        assert "cuda" in record, "what the set pins is on hold"
        second = lab.playbook("--tags", STAGES)
        assert second.returncode == 0, second.stdout[-6000:]
        assert {host: counts["changed"] for host, counts in recap(second.stdout).items()} == dict.fromkeys(STOOD_IN, 0)

        gone = lab.playbook(name="playbooks/teardown.yml")
        assert gone.returncode == 0, gone.stdout[-6000:]
        after = snapshots(lab, STOOD_IN)
        assert {node: differences(before[node], after[node]) for node in STOOD_IN} == {node: [] for node in STOOD_IN}
