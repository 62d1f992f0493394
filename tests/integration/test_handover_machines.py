"""Handover day on machines with NFS, from nothing to its papers: a lab of its own is deployed, one of its virtual
machines serves a folder to the other over a link of known rate, and the whole of test_handover_lab.py goes over it:
their kernels boot again, and the mounts come back by themselves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from conftest import NEEDS_VMS, Lab, toolkit

from tests.support import handover_lab as handover
from tests.support.handover_lab import Day, Hand
from tests.support.lease_lab import on_each, shell
from tests.support.nfs_link import CARRIED_GB_S, EXPORT, FAR, HOME, LINK_GBPS, MOUNT, TRUTH
from tests.support.traces import traces
from toolkit.lab import lab as labs
from toolkit.lab import network

pytestmark = [
    pytest.mark.rest,
    NEEDS_VMS,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab"),
]
NAME = "paper-vm"
SERVER, CLIENT = "gpu1", "gpu2"  # a witnessed list switches the first off, suite recovery lets the last one die
CONTAINERS = ("head", "client1")
#: No training is measured on emulated processors, and their time is dear.
WITHOUT = {"horovod_state": "absent", "monitoring_state": "absent"}
#: Found without as-built, which takes ten minutes there.
PLANTED = ("sysctl-drift", "preflight", "pf.tuning")
LIMIT_S = 3600.0
#: As on a site: hard, and from fstab, so that it comes back with the machine.
TABLE = f"{{address}}:{EXPORT} {MOUNT} nfs4 hard,_netdev,x-systemd.mount-timeout=300{{more}} 0 0"
OWN = ",x-systemd.requires=nfs-server.service"
SERVE = f"""set -e
mkdir -p {EXPORT}/far
echo '{EXPORT} *(rw,no_root_squash,no_subtree_check,async)' > /etc/exports
systemctl enable --now nfs-server
exportfs -ra
"""


def share(lab: Lab) -> None:
    """One machine serves, both mount it, and the other's link carries LINK_GBPS."""
    spec = labs.load(NAME)
    address = spec.fabric_address(spec.node(SERVER))
    shell(lab, SERVER, SERVE)
    for name, more in ((SERVER, OWN), (CLIENT, "")):
        line = TABLE.format(address=address, more=more)
        shell(
            lab, name, f"set -e; mkdir -p {MOUNT}; echo '{line}' >> /etc/fstab; systemctl daemon-reload; mount {MOUNT}"
        )
    network.shape_link(spec, spec.node(CLIENT), LINK_GBPS)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Lab]:
    """The lab, provisioned, with NFS; it goes without a trace."""
    inventory = tmp_path / "inventory"
    if any(traces(NAME).values()):  # of a run that was cut off
        assert toolkit("lab", "down", "--name", NAME).returncode == 0
    up = toolkit("lab", "up", "--nodes", "vm", "--name", NAME, "--inventory", inventory)
    try:
        assert up.returncode == 0, up.stderr
        lab = Lab(NAME, inventory)
        declare(inventory)
        began = time.monotonic()
        done = toolkit("deploy", "-i", inventory, timeout_s=LIMIT_S)
        print(f"deploy: {(time.monotonic() - began) / 60:.1f} minutes")
        assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
        share(lab)
        yield lab
    finally:
        down = toolkit("lab", "down", "--name", NAME)
    assert down.returncode == 0, down.stderr
    assert not any(traces(NAME).values())


def declare(inventory: Path) -> None:
    """Two units, what is left out, and the storage of the machines: containers have no NFS in their kernel."""
    hosts = inventory / "hosts.yml"
    handover.racks(hosts)
    tree = yaml.safe_load(hosts.read_text())
    tree["all"]["vars"] |= WITHOUT
    hosts.write_text(yaml.safe_dump(tree, sort_keys=False))
    for name, storage in ((SERVER, [HOME]), (CLIENT, [HOME, FAR])):
        path = inventory / "host_vars" / f"{name}.yml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump({"storage": storage}))


def hands(lab: Lab) -> list[Hand]:
    """Cable, leaf, the button and the power cables. A machine's link is taken out at its card, a container's inside."""

    def cable(*names: str, plugged: bool) -> None:
        fault = ("clear",) if plugged else ("set",)
        for name in names:
            kind = () if plugged else ("port-down",)
            done = toolkit("lab", "fault", *fault, name, *kind, "--name", lab.name)
            assert done.returncode == 0, done.stderr

    def leaf(on: bool) -> None:
        on_each(lab, CONTAINERS, f"ip link set fab0 {'up' if on else 'down'}")
        cable(SERVER, CLIENT, plugged=on)

    return [
        (lambda: cable(SERVER, plugged=False), lambda: cable(SERVER, plugged=True)),
        (lambda: leaf(False), lambda: leaf(True)),
        handover.power(lab, SERVER),
        handover.power(lab, SERVER),
    ]


def known_rate(day: Day, run: Path) -> None:
    """fio finds what the link carries: never more, and less only where this machine was too busy to carry that."""
    for last in (False, False, True):
        short = []
        for id_ in ("st.read", "st.write"):
            judgements = handover.criteria(run)[id_]["judgements"]
            (one,) = (each for each in judgements if each["about"]["op"] == FAR["name"])
            print(f"{id_}: {one['value']} GB/s, {one['reason']}; the link carries {CARRIED_GB_S:.5f}")
            off = -1.0 if one["value"] is None else one["value"] / CARRIED_GB_S - 1
            assert off <= TRUTH, one["reason"]
            short += [one["reason"]] if off < -TRUTH else []
        if not short:
            return
        assert not last, short
        run = day.measured("--suite", "storage", codes=(0, 3))


def test_a_handover_of_machines_with_nfs_from_the_first_fault_to_its_papers(site: Lab, tmp_path: Path) -> None:
    day = Day(site, tmp_path, hands(site), PLANTED, limit_s=LIMIT_S, quiet_s=900)
    handover.a_fault_becomes_a_point(day)
    run = handover.all_of_it(day)
    known_rate(day, run)
    nfs = on_each(site, (SERVER, CLIENT), f"findmnt --noheadings --output FSTYPE --target {MOUNT}")
    assert {name: kind.strip() for name, kind in nfs.items()} == dict.fromkeys((SERVER, CLIENT), "nfs4")
    assert site.ssh(SERVER, f"find {EXPORT} -name '.toolkit-storage-*'") == "", "nothing is left"
    handover.papers(day, run)
