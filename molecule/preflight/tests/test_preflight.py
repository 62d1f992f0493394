"""Preflight reads only, and refuses once with every reason of every node."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "inventory")


def preflight(*arguments):
    command = ["ansible-playbook", ROOT / "site.yml", "-i", INVENTORY, *arguments]
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
