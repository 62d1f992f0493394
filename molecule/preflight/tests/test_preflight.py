"""Preflight reads only, and refuses once with every reason of every node."""

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "inventory")


def preflight(*arguments, playbook="site.yml", inventory=INVENTORY):
    command = ["ansible-playbook", ROOT / playbook, "-i", inventory, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_nothing_was_installed(host):
    assert not host.package("chrony").is_installed
    assert not host.file("/opt/elastic-ai").exists


def test_every_reason_of_every_node_is_named_and_nothing_is_installed(host):
    run = preflight("-e", "{preflight_memory_min_mib: 99999999, preflight_kernel_min: '99.1'}")
    text = " ".join(run.stdout.split())
    assert run.returncode != 0
    for name in ("head", "gpu1"):
        assert f"{name} cannot be provisioned: kernel is" in text
    assert text.count("at least 99999999 MiB is needed") >= 2
    assert not host.package("chrony").is_installed


def test_an_address_declared_twice_and_a_missing_port_are_named():
    ports = "{fabric_ports: [{interface: fab7, address: 192.0.2.1/24}]}"
    run = preflight("-e", ports)
    text = " ".join(run.stdout.split())
    assert run.returncode != 0
    assert "fabric port fab7 does not exist; interfaces there: fab0, mgmt0" in text
    assert "address 192.0.2.1 is declared more than once in the inventory" in text


def test_a_mix_of_versions_is_refused_on_the_node_that_would_get_it():
    run = preflight("-e", "{stack_release: current, nvidia_driver_version: 550.163.01}")
    text = " ".join(run.stdout.split())
    assert run.returncode != 0
    assert "gpu1 cannot be provisioned: CUDA 13.1.1 needs a driver of branch 580 or later" in text
    assert "head cannot be provisioned" not in text


def test_a_recording_is_judged_without_reaching_a_host(tmp_path):
    assert preflight("-e", f"preflight_record_to={tmp_path}/kept", playbook="playbooks/preflight.yml").returncode == 0
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["gpu1.json", "head.json"]
    nowhere = tmp_path / "inventory"
    nowhere.write_text(
        "all: {children: {heads: {hosts: {head: {ansible_host: 192.0.2.1}}},"
        " gpu_servers: {hosts: {gpu1: {ansible_host: 192.0.2.2, ansible_ssh_executable: /bin/false}}}}}\n"
    )
    nowhere = nowhere.rename(tmp_path / "hosts.yml")
    judged = ["-e", f"preflight_recorded={tmp_path}/kept", "-e", "stack_release=rehearsal"]
    run = preflight(*judged, playbook="playbooks/preflight.yml", inventory=nowhere)
    assert run.returncode == 0, run.stdout
    recording = tmp_path / "kept" / "gpu1.json"
    document = json.loads(recording.read_text())
    v100 = {
        "address": "0000:1a:00.0",
        "vendor": "0x10de",
        "device": "0x1db1",
        "class": "0x030200",
        "numa_node": 0,
        "driver": "",
    }
    document["modules"]["node_state"]["pci"].append(v100)
    recording.write_text(json.dumps(document))
    run = preflight(*judged, "-e", "stack_release=current", playbook="playbooks/preflight.yml", inventory=nowhere)
    assert run.returncode != 0
    assert "CUDA 13.1.1 has no code for Tesla V100 SXM2 16GB" in " ".join(run.stdout.split())
