"""Storage over NFS between a lab's virtual machines, whose stock kernel has a server and clients: behind a link of
known rate fio's truth is that of the link, and a mount that hangs costs its own node."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import NEEDS_VMS, Lab, machines, toolkit

from tests.support.nfs_link import CARRIED_GB_S, EXPORT, FAR, HOME, LINK_GBPS, MOUNT, TRUTH
from toolkit.lab import lab as labs
from toolkit.lab import network

pytestmark = [
    pytest.mark.rest,
    NEEDS_VMS,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab"),
]
NAME = "itnfs"
SERVER, CLIENT = "gpu1", "gpu2"
SERVE = f"""mkdir -p {EXPORT}/far {MOUNT}
echo '{EXPORT} *(rw,no_root_squash,no_subtree_check,async)' >/etc/exports
systemctl start nfs-server
exportfs -ra
"""
NFS = "-p tcp --dport 2049 -j DROP"


@pytest.fixture(scope="module")
def nfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Machines that share a folder of one of them; the other's link carries LINK_GBPS."""
    inventory = tmp_path_factory.mktemp("nfs") / NAME
    with machines(NAME, inventory) as lab:
        spec = labs.load(NAME)
        server = spec.fabric_address(spec.node(SERVER))
        lab.ssh(SERVER, f"sh -c '{SERVE.replace(chr(39), chr(34))}'")
        for name in (SERVER, CLIENT):
            lab.ssh(name, f"mkdir -p {MOUNT} && mount -t nfs4 {server}:{EXPORT} {MOUNT}")
        network.shape_link(spec, spec.node(CLIENT), LINK_GBPS)
        for name, storage in ((SERVER, [HOME]), (CLIENT, [HOME, FAR])):
            path = inventory / "host_vars" / f"{name}.yml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(yaml.safe_dump({"storage": storage}))
        yield lab


def judged(lab: Lab, runs: Path, *words: str) -> dict[str, list[dict[str, Any]]]:
    """The judgements of each criterion of a run of suite storage."""
    done = toolkit(
        "validate", "-i", lab.inventory, "--runs-dir", runs, "--fabric", "tcp10", "--suite", "storage", "--format",
        "json", *words, timeout_s=1500,
    )  # fmt: skip
    print(done.stdout[-2000:])
    assert done.returncode in (0, 3), done.stdout + done.stderr
    found = json.loads((max(runs.iterdir()) / "verdict.json").read_text())["criteria"]
    return {one["id"]: one["judgements"] for one in found if one["id"].startswith("st.")}


def of(judgements: list[dict[str, Any]], node: str, storage: str) -> dict[str, Any]:
    """What is said of a node at a storage."""
    (one,) = (
        each for each in judgements if each["about"]["op"] == storage and node == each["about"]["ends"][0]["node"]
    )
    return one


def test_behind_a_link_of_known_rate_fio_finds_that_rate(nfs: Lab, tmp_path: Path) -> None:
    found = judged(nfs, tmp_path)
    for id_ in ("st.read", "st.write"):
        one = of(found[id_], CLIENT, "far")
        assert one["verdict"] == "pass", one["reason"]
        value = one["value"]
        print(f"{id_}: {value:.5f} GB/s, the link carries {CARRIED_GB_S:.5f}")
        assert abs(value / CARRIED_GB_S - 1) <= TRUTH, one["reason"]
    for id_ in ("st.seen", "st.flock"):
        assert [one["verdict"] for one in found[id_]] == ["pass"], found[id_]
    assert nfs.ssh(SERVER, f"find {EXPORT} -name '.toolkit-storage-*'") == "", "nothing is left"


def test_a_mount_that_hangs_costs_its_own_node(nfs: Lab, tmp_path: Path) -> None:
    """The client's packets are dropped on their way: its mount is a hard one, and whoever touches it waits."""
    nfs.ssh(CLIENT, f"iptables -I OUTPUT {NFS}")
    try:
        found = judged(nfs, tmp_path)
    finally:
        nfs.ssh(CLIENT, f"iptables -D OUTPUT {NFS}")
    for storage in ("home", "far"):
        one = of(found["st.read"], CLIENT, storage)
        assert (one["verdict"], "did not answer in 10 s" in one["reason"]) == ("not-measured", True), one
    assert of(found["st.read"], SERVER, "home")["verdict"] == "not-applicable", "recorded: its own mount is well"
    assert f"{CLIENT}: {MOUNT} did not answer" in found["st.seen"][0]["reason"]
