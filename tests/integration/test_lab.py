"""The lab itself: comes up, is what it says it is, and goes without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BIN, ROOT, Lab, call, toolkit

from toolkit.lab import lab as labs
from toolkit.lab import network


def traces(name: str) -> dict[str, list[str]]:
    """Everything of a lab that could be left on this machine."""
    mark = f"eai-{name}"
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    links = json.loads(call(["ip", "-j", "link"]).stdout)
    own = {str(os.getpid()), str(os.getppid())}
    processes = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            words = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if proc.name not in own and (mark in words or f"labs/{name}/" in words):
            processes.append(words)
    listing = ["systemctl", "list-units", "--all", "--plain", "--no-legend", f"elastic-ai-lab-{name}*"]
    units = call(listing).stdout if Path("/run/systemd/system").is_dir() else ""
    return {
        "processes": processes,
        "mounts": [m for m in mounts if mark in m or f"labs/{name}" in m],
        "namespaces": network.namespaces_of(name),
        "units": units.splitlines(),
        "links": [x["ifname"] for x in links if x.get("ifalias") == mark],
        "cgroups": [str(p) for p in Path("/sys/fs/cgroup").glob(f"*/elastic-ai-lab/{name}")],
        "rules": [r for r in call(["iptables-save"]).stdout.splitlines() if "eai" in r or "10.77." in r],
        "folders": [str(labs.lab_dir(name))] if labs.lab_dir(name).exists() else [],
    }


def test_down_leaves_nothing():
    forwarding = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    before = traces("trace")
    up = toolkit("lab", "up", "--name", "trace", "--nodes", "2")
    assert up.returncode == 0, up.stderr
    during = traces("trace")
    for kind in ("processes", "mounts", "namespaces", "folders"):
        assert during[kind], f"the search for {kind} would find nothing anyway"
    assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == forwarding
    assert toolkit("lab", "down", "--name", "trace").returncode == 0
    assert traces("trace") == before


@pytest.mark.parametrize("after_s", [0.3, 0.5, 0.7, 0.9])
def test_down_clears_what_a_killed_up_left(after_s: float):
    before = traces("killed")
    up = subprocess.Popen([BIN / "toolkit", "lab", "up", "--name", "killed"], cwd=ROOT, stderr=subprocess.DEVNULL)
    time.sleep(after_s)
    up.send_signal(signal.SIGKILL)
    up.wait()
    assert toolkit("lab", "down", "--name", "killed").returncode == 0
    assert traces("killed") == before


def test_up_again_leaves_a_healthy_lab_alone(lab: Lab):
    boot = lab.ssh("gpu1", "cat", "/proc/sys/kernel/random/boot_id")
    again = toolkit("lab", "up", "--name", lab.name, "--inventory", lab.inventory)
    assert again.returncode == 0
    assert "up already" in again.stderr
    assert lab.ssh("gpu1", "cat", "/proc/sys/kernel/random/boot_id") == boot


def test_another_size_of_a_running_lab_is_refused(lab: Lab):
    done = toolkit("lab", "up", "--name", lab.name, "--nodes", "3", "--inventory", lab.inventory)
    assert done.returncode == 2
    assert f"toolkit lab down --name {lab.name}" in done.stderr


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
        assert f"nodes of debian13 at 1 Gbit/s; run 'toolkit lab down --name {name}'" in other.stderr
    finally:
        assert toolkit("lab", "down", "--name", name).returncode == 0


def test_a_node_reboots_through_ansible(lab: Lab):
    boot = lab.ssh("client1", "cat", "/proc/sys/kernel/random/boot_id")
    done = call([BIN / "ansible", "-i", lab.inventory, "client1", "-m", "ansible.builtin.reboot"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert lab.ssh("client1", "cat", "/proc/sys/kernel/random/boot_id") != boot


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
