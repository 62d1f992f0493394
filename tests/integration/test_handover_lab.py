"""Handover day in a lab: storage, recovery, a witnessed list, a punch list closed by a second run, two units and their
sum, papers with a last day; and a second look by stock tools."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from conftest import NODES, Lab, toolkit

from tests.support import handover_lab as handover
from tests.support.handover_lab import Day, Hand

pytestmark = [pytest.mark.rest, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab")]
STORAGE = "---\nstorage:\n  - {name: home, path: /mnt/lab-shared, shared: true, filesystem: ext4}\n"


@pytest.fixture
def site(pool: Lab) -> Iterator[Lab]:
    """The lab, whose inventory names a storage and two racks for the time of the test."""
    storage, hosts = pool.inventory / "group_vars/all/storage.yml", pool.inventory / "hosts.yml"
    storage.parent.mkdir(parents=True, exist_ok=True)
    kind = pool.ssh("gpu1", "findmnt --noheadings --output FSTYPE --target /mnt/lab-shared").strip()
    storage.write_text(STORAGE.replace("ext4", kind))
    before = handover.racks(hosts)
    done = toolkit("deploy", "-i", pool.inventory, timeout_s=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    yield pool
    hosts.write_text(before)
    for path in (storage, pool.inventory / "punch.yml"):
        path.unlink(missing_ok=True)
    for node in ("gpu1", "gpu2"):
        toolkit("lab", "fault", "clear", node, "--name", pool.name)


def ports(lab: Lab, nodes: tuple[str, ...], state: str) -> None:
    """Fabric links of nodes are taken out, or back."""
    for node in nodes:
        lab.ssh(node, f"ip link set fab0 {state}")


def hands(lab: Lab) -> list[Hand]:
    """Cable, leaf, the button and the power cables."""
    out = [(partial(ports, lab, nodes, "down"), partial(ports, lab, nodes, "up")) for nodes in (("gpu1",), NODES)]
    return [*out, handover.power(lab, "gpu1"), handover.power(lab, "gpu1")]


def test_a_handover_from_the_first_fault_to_its_papers(site: Lab, tmp_path: Path) -> None:
    day = Day(site, tmp_path, hands(site))
    handover.a_fault_becomes_a_point(day)
    run = handover.all_of_it(day)
    assert site.ssh("gpu1", "find /mnt/lab-shared -name '.toolkit-storage-*'") == "", "nothing is left"
    handover.papers(day, run)
