"""The lab with virtual machines: two GPU servers with a stock kernel, soft-RoCE between them, real reboots.

Boots them once for all tests (minutes where no KVM works). Nothing is provisioned: what the tests need of the fabric
they set up with a few commands.
"""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BIN, NEEDS_VMS, ROOT, Lab, call, toolkit

from tests.support.traces import traces
from toolkit.lab.spec import lab_dir

NAME = "itvm"
BOOT_ID = ("cat", "/proc/sys/kernel/random/boot_id")
pytestmark = [
    pytest.mark.rest,
    NEEDS_VMS,
]
SOFT_ROCE = """set -e
modprobe -a rdma_rxe ib_uverbs rdma_ucm
ip link set fab0 mtu 9000 up
ip addr replace {address}/24 dev fab0
rdma link show | grep -q 'netdev fab0' || rdma link add rxe_fab0 type rxe netdev fab0
mkdir -p /sys/kernel/config/rdma_cm/rxe_fab0
echo 106 >/sys/kernel/config/rdma_cm/rxe_fab0/ports/1/default_roce_tos
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """head and client1 as containers, gpu1 and gpu2 as machines."""
    inventory = tmp_path_factory.mktemp("inventory") / NAME
    up = toolkit("lab", "up", "--nodes", "vm", "--name", NAME, "--inventory", inventory)
    assert up.returncode == 0, up.stderr
    assert "virtual machines run with " in up.stderr
    yield Lab(NAME, inventory)
    assert toolkit("lab", "down", "--name", NAME).returncode == 0
    left = traces(NAME)
    assert not any(left.values()), left


@pytest.fixture(scope="module")
def fabric(lab: Lab) -> Lab:
    """Soft-RoCE on both machines (gpu2's until its reboot below), an address on a container's port."""
    for number, node in ((13, "gpu1"), (14, "gpu2")):
        lab.ssh(node, SOFT_ROCE.format(address=f"10.78.{index(lab)}.{number}"))
    lab.ssh("head", f"ip link set fab0 mtu 9000 up; ip addr replace 10.78.{index(lab)}.11/24 dev fab0")
    return lab


@functools.lru_cache
def index(lab: Lab) -> int:
    nodes = json.loads(toolkit("lab", "status", "--name", lab.name, "--json").stdout)["nodes"]
    return int(nodes[0]["fabric"].split(".")[2])


def test_machines_have_a_kernel_of_their_own_and_what_the_roles_load(lab: Lab):
    hosts = Path("/proc/sys/kernel/osrelease").read_text().strip()
    wanted = "rdma_rxe ib_umad ib_ipoib sch_netem sch_tbf smc smc_diag overlay br_netfilter 8021q bonding nft_compat"
    for node in ("gpu1", "gpu2"):
        kernel = lab.ssh(node, "uname -r").strip()
        assert kernel.endswith("-amd64")
        assert kernel != hosts
        lab.ssh(node, f"modprobe -a {wanted}")
        assert lab.ssh(node, "systemctl is-system-running --wait").strip() == "running"
        assert {"fab0", "mgmt0"} <= set(lab.ssh(node, "ls /sys/class/net").split())
    assert lab.ssh("gpu1", "cat /sys/class/dmi/id/product_name").strip() == "Standard PC (Q35 + ICH9, 2009)"


def test_jumbo_packets_pass_between_machines_and_containers(fabric: Lab):
    for target in (11, 14):
        fabric.ssh("gpu1", f"ping -c 2 -W 10 -M do -s 8972 10.78.{index(fabric)}.{target}")


def test_verbs_move_data_as_the_devices_counters_say(fabric: Lab):
    counter = "cat /sys/class/infiniband/rxe_fab0/ports/1/hw_counters/sent_pkts"
    before = int(fabric.ssh("gpu1", counter))
    fabric.ssh("gpu2", "systemd-run --quiet --unit=pingpong ibv_rc_pingpong -d rxe_fab0 -g 1 -n 100; sleep 2")
    said = fabric.ssh("gpu1", f"timeout 60 ibv_rc_pingpong -d rxe_fab0 -g 1 -n 100 10.78.{index(fabric)}.14")
    assert "100 iters in" in said
    assert int(fabric.ssh("gpu1", counter)) - before >= 100


def test_a_machine_reboots_through_ansible_and_keeps_its_disk(lab: Lab):
    lab.ssh("gpu2", "touch /root/kept")
    boot = lab.ssh("gpu2", *BOOT_ID)
    done = call([BIN / "ansible", "-i", lab.inventory, "gpu2", "-m", "ansible.builtin.reboot"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert lab.ssh("gpu2", *BOOT_ID) != boot
    assert lab.ssh("gpu2", "ls /root").split() == ["kept"]


def test_a_machine_that_lost_its_power_comes_back_with_its_disk(lab: Lab):
    lab.ssh("gpu2", "echo text >/root/synced; sync")
    where = ("--name", lab.name, "gpu2")
    assert toolkit("lab", "fault", "set", *where, "dead-node").returncode == 0
    states = json.loads(toolkit("lab", "status", "--name", lab.name, "--json").stdout)["nodes"]
    assert [n["running"] for n in states] == [True, True, True, False]
    assert toolkit("lab", "fault", "clear", *where).returncode == 0
    assert lab.ssh("gpu2", "cat /root/synced") == "text\n"


TOS = "cat /sys/kernel/config/rdma_cm/rxe_fab0/ports/1/default_roce_tos"
GID_TYPE = "cat /sys/class/infiniband/rxe_fab0/ports/1/gid_attrs/types/1"
FAULTS = {
    "port-down": ("cat /sys/class/net/fab0/carrier", "1", "0"),
    "wrong-mtu": ("cat /sys/class/net/fab0/mtu", "9000", "1500"),
    "rocev1-gid": (GID_TYPE, "RoCE v2", "IB/RoCE v1"),
    "firewall-4791": ("iptables -S INPUT | grep -c 4791 || true", "0", "1"),
    "dscp-unset": (TOS, "106", "0"),
    "rxe-missing": ("rdma link show | grep -c 'netdev fab0' || true", "1", "0"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_planted_fault_is_there_and_goes_again(fabric: Lab, kind: str):
    look, sound, faulty = FAULTS[kind]
    where = ("--name", fabric.name, "gpu1")
    planted = toolkit("lab", "fault", "set", *where, kind)
    assert planted.returncode == 0, planted.stderr
    assert fabric.ssh("gpu1", look).strip() == faulty
    cleared = toolkit("lab", "fault", "clear", *where)
    assert cleared.returncode == 0, cleared.stderr
    assert fabric.ssh("gpu1", look).strip() == sound


def test_memlock_of_logins_is_what_pam_gives(lab: Lab):
    where = ("--name", lab.name, "gpu1")
    before = lab.ssh("gpu1", "ulimit -l")
    toolkit("lab", "fault", "set", *where, "memlock-low")
    assert lab.ssh("gpu1", "ulimit -l").strip() == "64"
    toolkit("lab", "fault", "clear", *where)
    assert lab.ssh("gpu1", "ulimit -l") == before


def test_a_fault_of_machines_is_refused_on_a_container(lab: Lab):
    done = toolkit("lab", "fault", "set", "--name", lab.name, "head", "port-down")
    assert done.returncode == 2
    assert "head is a container" in done.stderr


def test_down_clears_what_a_killed_up_left():
    args = [BIN / "toolkit", "lab", "up", "--nodes", "vm", "--name", "vmkilled"]
    up = subprocess.Popen(args, cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not any("qemu-system" in p for p in traces("vmkilled")["processes"]) and time.monotonic() < deadline:
        time.sleep(0.1)
    up.send_signal(signal.SIGKILL)
    up.wait()
    assert any("qemu-system" in p for p in traces("vmkilled")["processes"])
    assert toolkit("lab", "down", "--name", "vmkilled").returncode == 0
    left = traces("vmkilled")
    assert not any(left.values()), left


def test_a_machine_that_never_answers_shows_its_console(lab: Lab):
    where = ("--name", lab.name, "gpu1")
    home = lab_dir(lab.name) / "nodes/gpu1"
    assert toolkit("lab", "fault", "set", *where, "dead-node").returncode == 0
    (home / "disk.qcow2").rename(home / "disk.away")
    try:
        done = toolkit("lab", "fault", "clear", *where)
        assert done.returncode == 2
        assert "the machine gpu1 has stopped; its console ends with" in done.stderr
        assert "disk.qcow2" in done.stderr
    finally:
        (home / "disk.away").rename(home / "disk.qcow2")
    assert toolkit("lab", "fault", "clear", *where).returncode == 0
