"""Planted trouble while packages are installed: one clear message, nothing half-done, and a second run repairs it.

A lab of its own. gpu1 has a small apt repository in a folder (/srv/planted), with packages made for these tests; the
tests of keys use the lab's signed repositories. Each test leaves the nodes without any of these packages.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Lab, toolkit

pytestmark = pytest.mark.rest
NODE = "gpu1"
# Makes the repository on the node: dpkg-deb is there, and an index is a few lines for each package.
MAKE = r"""
set -e
mkdir -p /srv/planted && cd /srv/planted
make() {  # name version depends postinst
    mkdir -p "$1/DEBIAN" "$1/opt/planted"
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: none\n' "$1" "$2" > "$1/DEBIAN/control"
    printf 'Depends: %s\nDescription: planted for a test\n' "$3" >> "$1/DEBIAN/control"
    if [ -n "$4" ]; then printf '#!/bin/sh\n%s\n' "$4" > "$1/DEBIAN/postinst"; chmod 755 "$1/DEBIAN/postinst"; fi
    size=1; if [ "$1" = planted-big ]; then size=4000000; fi
    head -c $size /dev/urandom > "$1/opt/planted/$1"
    dpkg-deb --build -Znone "$1" "$1_$2.deb" > /dev/null
    { sed '/^Depends: $/d' "$1/DEBIAN/control"; echo "Filename: ./$1_$2.deb"; echo "Size: $(stat -c %s "$1_$2.deb")"
      echo "SHA256: $(sha256sum "$1_$2.deb" | cut -d' ' -f1)"; echo; } >> Packages
    rm -r "$1"
}
make planted-tool 1.0 '' ''
make planted-tool 2.0 '' ''
make linux-image-99-planted 99 '' ''
make planted-kmod 1 'linux-image-99-planted' ''
make planted-driver 1 'planted-kmod' ''
make planted-big 1 '' ''
make planted-reboot 1 '' 'test -e /etc/planted-rebooted && exit 0
touch /etc/planted-rebooted
systemctl reboot --no-block
sleep 60'
echo 'deb [trusted=yes] file:/srv/planted ./' > /etc/apt/sources.list.d/planted.list
"""
UNDO = r"""
dpkg --purge planted-tool planted-driver planted-kmod linux-image-99-planted planted-big planted-reboot 2> /dev/null
rm -rf /var/lib/elastic-ai /opt/planted /etc/planted-rebooted /etc/systemd/system/ssh.service.d
"""
PLAY = """
- hosts: all
  become: true
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: packages}
"""
STATES = "${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\\n"
HOLD_LOCK = (
    "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(600)"
)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two nodes, with the repository of these tests on gpu1."""
    inventory = tmp_path_factory.mktemp("planted") / "inventory"
    up = toolkit("lab", "up", "--name", "planted", "--nodes", "2", "--inventory", inventory)
    assert up.returncode == 0, up.stderr
    lab = Lab("planted", inventory)
    lab.ssh(NODE, MAKE)
    yield lab
    down = toolkit("lab", "down", "--name", "planted")
    assert down.returncode == 0, down.stderr


@pytest.fixture
def node(planted: Lab) -> Iterator[Lab]:
    """The lab, with none of the planted packages installed."""
    yield planted
    planted.ssh(NODE, UNDO)


def states(lab: Lab) -> str:
    """What dpkg knows of every package on the node."""
    return lab.ssh(NODE, f"dpkg-query -W -f '{STATES}'")


def install(lab: Lab, tmp_path: Path, wanted: dict[str, str], **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run the role `packages` as the roles do."""
    play = tmp_path / "play.yml"
    play.write_text(PLAY)
    more = {"packages_owner": "planted", "packages_wanted": wanted, "packages_lock_timeout_s": 2, **variables}
    return lab.playbook("--limit", NODE, "-e", json.dumps(more), name=str(play))


def message(done: subprocess.CompletedProcess[str]) -> str:
    """The one message of a failed run, on one line; fails when there is none or more than one."""
    assert done.returncode != 0, done.stdout
    found = re.findall(r"^(?:fatal|failed): \[.*?(?=\n\n|\Z)", done.stdout + done.stderr, re.M | re.S)
    assert len(found) == 1, done.stdout + done.stderr
    return " ".join(found[0].split())


def repaired(done: subprocess.CompletedProcess[str]) -> None:
    """A second run worked, and had something to do."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^{NODE} .*changed=[1-9]", done.stdout, re.M), done.stdout


def test_a_lock_that_another_package_manager_holds(node: Lab, tmp_path: Path) -> None:
    before = states(node)
    node.ssh(NODE, f'systemd-run -q --unit planted-lock /usr/bin/python3 -c "{HOLD_LOCK}"')
    pid = node.ssh(NODE, "systemctl show -P MainPID planted-lock").strip()
    text = message(install(node, tmp_path, {"planted-tool": ""}))
    assert f"/var/lib/dpkg/lock-frontend is held by process {pid} (/usr/bin/python3" in text
    assert "waited 2 s (packages_lock_timeout_s). Nothing was changed" in text
    assert states(node) == before
    node.ssh(NODE, "systemctl stop planted-lock")
    repaired(install(node, tmp_path, {"planted-tool": ""}))
    assert "planted-tool 2.0 install installed" in states(node)


def test_a_version_that_no_repository_has(node: Lab, tmp_path: Path) -> None:
    before = states(node)
    text = message(install(node, tmp_path, {"planted-tool": "3.0", "tree": ""}))
    assert "planted-tool 3.0 is in no repository of this node; there are 2.0, 1.0." in text
    assert states(node) == before
    repaired(install(node, tmp_path, {"planted-tool": "1.0"}))
    assert "planted-tool 1.0 hold installed" in states(node)
    upgrade = node.ssh(NODE, "apt-get -y -qq -o Debug::NoLocking=1 -s upgrade; apt-mark showhold")
    assert "Inst planted-tool" not in upgrade
    assert "planted-tool" in upgrade


def test_a_driver_that_pulls_another_kernel(node: Lab, tmp_path: Path) -> None:
    before = states(node)
    wanted = {"planted-driver": "1", "planted-tool": ""}
    for check in ([], ["--check"]):
        play = tmp_path / "play.yml"
        play.write_text(PLAY)
        more = {"packages_owner": "planted", "packages_wanted": wanted, "packages_forbid": ["linux-image-*"]}
        text = message(node.playbook("--limit", NODE, "-e", json.dumps(more), *check, name=str(play)))
        assert "would install linux-image-99-planted (99), which this role must not touch" in text
        assert "planted-driver -> planted-kmod -> linux-image-99-planted" in text
    assert states(node) == before
    repaired(install(node, tmp_path, {"planted-tool": ""}, packages_forbid=["linux-image-*"]))


def test_a_package_that_the_administrator_holds(node: Lab, tmp_path: Path) -> None:
    node.ssh(NODE, "apt-get -y -qq install linux-image-99-planted planted-tool=1.0 && apt-mark hold planted-tool")
    before = states(node)
    text = message(install(node, tmp_path, {"planted-tool": "2.0"}))
    assert (
        "planted-tool is on hold and not by the toolkit: release it (apt-mark unhold or dnf versionlock delete)" in text
    )
    assert states(node) == before
    node.ssh(NODE, "apt-mark unhold planted-tool")
    repaired(install(node, tmp_path, {"planted-tool": "2.0"}))
    assert "planted-tool 2.0 hold installed" in states(node)


def test_a_disk_that_is_full_before_anything_is_fetched(node: Lab, tmp_path: Path) -> None:
    node.ssh(NODE, "mount -t tmpfs -o size=16k tmpfs /var/cache/apt/archives")
    try:
        before = states(node)
        text = message(install(node, tmp_path, {"tree": ""}))
        assert "the disk is full: /var/cache/apt/archives has 0 MiB free and 1 MiB are needed" in text
        assert states(node) == before
    finally:
        node.ssh(NODE, "umount /var/cache/apt/archives")
    repaired(install(node, tmp_path, {"tree": ""}))
    repaired(install(node, tmp_path, {}, packages_state="absent"))
    assert states(node) == before


def test_a_disk_that_fills_up_while_a_package_is_unpacked(node: Lab, tmp_path: Path) -> None:
    before = states(node)
    node.ssh(NODE, "mkdir -p /opt/planted && mount -t tmpfs -o size=64k tmpfs /opt/planted")
    try:
        text = message(install(node, tmp_path, {"planted-big": ""}))
        assert "the disk is full (No space left on device): make room" in text
    finally:
        node.ssh(NODE, "umount /opt/planted")
    repaired(install(node, tmp_path, {"planted-big": ""}))
    assert "planted-big 1 install installed" in states(node)
    repaired(install(node, tmp_path, {}, packages_state="absent"))
    assert states(node) == before


def test_a_repository_key_that_is_not_the_declared_one(node: Lab, tmp_path: Path) -> None:
    play = tmp_path / "repos.yml"
    play.write_text(
        "- hosts: gpu1\n  become: true\n  gather_facts: true\n  gather_subset: ['!all', min]\n  roles: [repos]\n"
    )
    only = {"repos_enabled": ["cuda"]}
    wrong = {**only, "repos_fingerprints": {"cuda": "0" * 40}}
    text = message(node.playbook("-e", json.dumps(wrong), name=str(play)))
    assert "cuda" in text
    assert "Nothing was changed" in text
    assert "elastic-ai-cuda" not in node.ssh(NODE, "ls /etc/apt/sources.list.d")
    repaired(node.playbook("-e", json.dumps(only), name=str(play)))

    # And a key that changes later, behind the role's back: apt refuses, and the message says which repository.
    source = "/etc/apt/sources.list.d/elastic-ai-cuda.sources"
    before = states(node)
    other = "/usr/share/keyrings/debian-archive-keyring.gpg"
    node.ssh(
        NODE, f"rm -f /var/lib/apt/lists/vendor*; sleep 0.1; sed -i 's|^Signed-By: .*|Signed-By: {other}|' {source}"
    )
    text = message(install(node, tmp_path, {"planted-tool": ""}))
    assert "a package repository is not signed by the key that this node trusts for it" in text
    assert "vendor.elastic-ai.lab/cuda" in text
    assert states(node) == before
    repaired(node.playbook("-e", json.dumps(only), name=str(play)))
    repaired(install(node, tmp_path, {"planted-tool": ""}))
    repaired(node.playbook("-e", json.dumps({**only, "repos_state": "absent"}), name=str(play)))


def test_a_node_that_reboots_in_the_middle_of_a_transaction(node: Lab, tmp_path: Path) -> None:
    booted = node.ssh(NODE, "cat /proc/sys/kernel/random/boot_id")
    # sshd comes back later than Ansible tries again, as on a real machine.
    slow = "[Service]\\nExecStartPre=/bin/sleep 10\\n"
    folder = "/etc/systemd/system/ssh.service.d"
    node.ssh(NODE, f"mkdir -p {folder} && printf '{slow}' > {folder}/slow.conf && systemctl daemon-reload")
    done = install(node, tmp_path, {"planted-reboot": "", "planted-tool": "1.0"})
    assert done.returncode == 4, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("UNREACHABLE!") == 1
    assert re.search(rf"^{NODE} .*unreachable=1 .*failed=0", done.stdout, re.M), done.stdout
    for _ in range(60):
        again = toolkit("lab", "ssh", "--name", node.name, NODE, "--", "cat /proc/sys/kernel/random/boot_id")
        if again.returncode == 0 and again.stdout != booted:
            break
        time.sleep(1)
    assert "planted-reboot 1 install installed" not in states(node)
    repaired(install(node, tmp_path, {"planted-reboot": "", "planted-tool": "1.0"}))
    after = "\n".join(line for line in states(node).splitlines() if line.startswith("planted"))
    assert "planted-reboot 1 install installed" in after
    assert "planted-tool 1.0 hold installed" in after
    repaired(install(node, tmp_path, {}, packages_state="absent"))
    assert "planted" not in states(node)
