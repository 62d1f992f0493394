"""The lab itself: comes up, is what it says it is, and goes without a trace."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BIN, ROOT, Lab, call, toolkit

from tests.support.traces import traces
from toolkit.lab.inside import state


@pytest.mark.parametrize("after_s", [0.3, 0.5, 0.7, 0.9])
def test_down_clears_what_a_killed_up_left(after_s: float):
    up = subprocess.Popen([BIN / "toolkit", "lab", "up", "--name", "killed"], cwd=ROOT, stderr=subprocess.DEVNULL)
    time.sleep(after_s)
    up.send_signal(signal.SIGKILL)
    up.wait()
    assert toolkit("lab", "down", "--name", "killed").returncode == 0
    left = traces("killed")
    assert not any(left.values()), left


def test_up_again_leaves_a_healthy_lab_alone(lab: Lab):
    boot = toolkit("lab", "ssh", "--name", lab.name, "gpu1", "--", "cat", "/proc/sys/kernel/random/boot_id").stdout
    again = toolkit("lab", "up", "--name", lab.name, "--inventory", lab.inventory)
    assert again.returncode == 0
    assert "up already" in again.stderr
    assert lab.ssh("gpu1", "cat", "/proc/sys/kernel/random/boot_id") == boot


def test_a_node_that_hangs_is_described_from_outside(lab: Lab):
    told = state(lab.name, "gpu1")
    assert "systemd-nspawn " in told
    assert "sshd " in told
    assert len(told.splitlines()) > 1, "its init answers, or it is said that it does not"


def test_the_projects_inventory_lists_the_lab_by_its_name(lab: Lab, tmp_path: Path):
    site = shutil.copytree(ROOT / "inventories/lab", tmp_path / "site")
    with (site / "hosts.yml").open("a") as file:
        file.write(f"lab: {lab.name}\n")
    done = call([BIN / "ansible", "-i", site, "all", "-m", "ansible.builtin.ping"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("pong") == 4


def test_another_size_of_a_running_lab_is_refused(lab: Lab):
    done = toolkit("lab", "up", "--name", lab.name, "--nodes", "3", "--inventory", lab.inventory)
    assert done.returncode == 2
    assert f"toolkit lab down --name {lab.name}" in done.stderr


@pytest.mark.rest
def test_nodes_of_another_release_boot_and_reboot(tmp_path: Path):
    name = "trixie"
    where = ("--name", name, "--nodes", "2", "--inventory", tmp_path / "inv")
    try:
        up = toolkit("lab", "up", "--os", "debian13", *where)
        assert up.returncode == 0, up.stderr
        nodes = Lab(name, tmp_path / "inv")
        assert nodes.ssh("gpu1", ". /etc/os-release; echo $ID $VERSION_ID").strip() == "debian 13"
        assert nodes.ssh("gpu1", "systemctl is-system-running --wait").strip() == "running"
        assert "non-free" in nodes.ssh("gpu1", "cat /etc/apt/sources.list.d/*")
        assert json.loads(toolkit("lab", "status", "--name", name, "--json").stdout)["os"] == "debian 13"
        done = call([BIN / "ansible", "-i", nodes.inventory, "gpu1", "-m", "ansible.builtin.reboot"])
        assert done.returncode == 0, done.stdout + done.stderr
        other = toolkit("lab", "up", "--os", "debian12", *where)
        assert other.returncode == 2
        assert f"(containers) of debian13 at 1 Gbit/s; run 'toolkit lab down --name {name}'" in other.stderr
    finally:
        assert toolkit("lab", "down", "--name", name).returncode == 0


def test_status_tells_a_dead_node_and_clear_revives_it(lab: Lab):
    toolkit("lab", "fault", "set", "--name", lab.name, "client1", "dead-node")
    status = toolkit("lab", "status", "--name", lab.name, "--json")
    assert status.returncode == 1
    states = {n["node"]: n["running"] for n in json.loads(status.stdout)["nodes"]}
    assert states == {"head": True, "client1": False, "gpu1": True, "gpu2": True}
    assert toolkit("lab", "fault", "clear", "--name", lab.name, "client1").returncode == 0
    assert toolkit("lab", "status", "--name", lab.name).returncode == 0


def test_unknown_node_is_named_with_those_that_exist(lab: Lab):
    done = toolkit("lab", "ssh", "--name", lab.name, "gpu9", "--", "true")
    assert done.returncode == 2
    assert "head, client1, gpu1, gpu2" in done.stderr
