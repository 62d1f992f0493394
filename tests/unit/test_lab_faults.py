"""Faults of a lab's nodes are planted and taken back: scripts on a tree and beside programs that note what is asked."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from toolkit.lab import faults, network
from toolkit.lab.morefaults import LOSS, MORE_FAULTS
from toolkit.lab.sh import run
from toolkit.lab.spec import LabSpec, make_spec
from toolkit.lab.vmfaults import HEAD, NODE_FAULTS

HOSTS = "127.0.0.1 localhost\n10.77.3.12 gpu1\n10.78.3.12 gpu1-fab0\n"
BACK = {"ip", "iptables", "systemctl", "systemd-run", "mount", "umount", "rdma", "sleep"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the scripts change of a node."""
    for folder in ("etc/security/limits.d", "etc/profile.d", "run", "tmp", "proc", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/hosts").write_text(HOSTS)
    (tmp_path / "etc/resolv.conf").write_text("nameserver 10.77.3.1\n")
    (tmp_path / "etc/localtime").symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    (tmp_path / "proc/mounts").write_text("")
    for name in BACK:
        program = tmp_path / "bin" / name
        units = ' case "$*" in list-units*) echo "elastic-ai-training.service loaded";; esac\n' if "ctl" in name else ""
        fails = ' case "$*" in *" -C "*) exit 1;; esac\n' if name == "iptables" else ""
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/asked\n{fails}{units}')
        program.chmod(0o755)
    return tmp_path


def of(tree: Path, script: str) -> list[str]:
    """Run it on the tree; what it asked of programs meanwhile."""
    (tree / "asked").write_text("")
    own = re.sub(r"(?<![\w$}])/(etc|run|tmp|proc)(?=/|\b)", lambda m: f"{tree}/{m[1]}", HEAD + script)
    own = own.replace("/usr/share/zoneinfo", str(tree / "zones")) if "readlink" not in script else own
    env = {**os.environ, "PATH": f"{tree}/bin:{os.environ['PATH']}"}
    done = run(["env", f"PATH={env['PATH']}", "sh", "-s"], stdin=own, check=False)
    assert done.returncode == 0, done.stderr
    return (tree / "asked").read_text().splitlines()


def files(tree: Path) -> dict[str, str]:
    """All of it but what the programs noted, what the scripts keep, and what goes with the file system over /tmp."""
    found = {}
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file() and not name.startswith(("bin/", "tmp/", "run/elastic-ai-lab-fault", "asked")):
            found[name] = path.read_text()
    return found


def test_there_are_at_least_thirty_faults_and_each_says_what_it_does() -> None:
    assert len(faults.FAULTS) >= 40
    assert len({f.about for f in faults.FAULTS.values()}) == len(faults.FAULTS)
    assert not {*MORE_FAULTS} & {*NODE_FAULTS}


@pytest.mark.parametrize("kind", MORE_FAULTS)
def test_what_was_planted_is_taken_back_whole(tree: Path, kind: str) -> None:
    fault, before = MORE_FAULTS[kind], files(tree)
    asked = of(tree, fault.plant)
    planted = files(tree)
    changing = [line for line in asked if not line.startswith(("rdma ", "sleep ", "systemctl cat"))]
    assert planted != before or changing, "nothing was planted"
    back = of(tree, fault.clear)
    assert files(tree) == before
    if kind in ("lossy-link", "port-closed"):
        assert any(" -I INPUT " in line for line in changing)
        assert any(" -C INPUT " in line for line in back)
    assert of(tree, fault.clear) is not None  # again, as after a reboot: no error
    assert files(tree) == before


@pytest.mark.parametrize(
    ("kind", "file", "words"),
    [
        ("names-wrong", "etc/hosts", "192.0.2.1 gpu1-fab0"),
        ("dns-dead", "etc/resolv.conf", "nameserver 192.0.2.1"),
        ("wrong-time-zone", "etc/localtime", "Pacific/Apia"),
        ("few-files", "etc/security/limits.d/zz-elastic-ai-lab-fault-nofile.conf", "nofile 64"),
        ("reboot-waits", "run/elastic-ai/reboot-required/elastic-ai-lab-fault", "planted"),
    ],
)
def test_what_a_fault_of_files_writes(tree: Path, kind: str, file: str, words: str) -> None:
    of(tree, MORE_FAULTS[kind].plant)
    assert words in files(tree)[file]
    assert "10.77.3.12 gpu1\n" in files(tree)["etc/hosts"]  # the way by which a node is reached stays


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("lossy-link", f"-i fab0 -m statistic --mode random --probability {LOSS}"),
        ("port-closed", "-i fab0 -p tcp"),
        ("flapping-port", "systemd-run --quiet --collect --unit=elastic-ai-lab-fault"),
        ("docker-stopped", "systemctl stop docker.service"),
        ("clock-free", "systemctl stop chrony.service"),
        ("disk-full", "mount -t tmpfs -o size=64k"),
    ],
)
def test_what_a_fault_of_programs_asks(tree: Path, kind: str, words: str) -> None:
    assert any(words in line for line in of(tree, MORE_FAULTS[kind].plant))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str]]:
    """Commands on the host, and what was given to them."""
    found: list[tuple[list[str], str]] = []
    for module in (network, faults):
        monkeypatch.setattr(module, "run", lambda words, stdin="", **_: found.append((list(words), stdin)))
    return found


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabSpec:
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path))
    return make_spec("x", 3, 4, 1)


@pytest.mark.parametrize(("kind", "device"), [("slow-sending", "fab0"), ("slow-receiving", "f-gpu2")])
def test_one_direction_is_slowed_and_both_are_given_back(
    spec: LabSpec, asked: list[tuple[list[str], str]], kind: str, device: str
) -> None:
    fault, node = faults.FAULTS[kind], spec.node("gpu2")
    fault.plant(spec, node, print)
    ((words, _),) = asked
    assert words[:7] == [
        "tc",
        "-n",
        spec.node_ns(node) if device == "fab0" else spec.switch_ns,
        "qdisc",
        "replace",
        "dev",
        device,
    ]
    slow = next(w for w in words if w.endswith("bit"))
    asked.clear()
    fault.clear(spec, node, print)
    assert [words[6] for words, _ in asked] == ["f-gpu2", "fab0"]
    assert all(int(next(w for w in words if w.endswith("bit"))[:-3]) > 5 * int(slow[:-3]) for words, _ in asked)


def test_a_swapped_cable_and_back(spec: LabSpec, asked: list[tuple[list[str], str]]) -> None:
    fault, node = faults.FAULTS["cable-swapped"], spec.node("gpu2")
    fault.plant(spec, node, print)
    fault.clear(spec, node, print)
    (_, there), (_, back) = asked
    assert there == "link set f-gpu2 master br-mgmt\n"
    assert back.startswith("link set f-gpu2 master br-fab\n")
    assert "br-fab mtu" in back


@pytest.mark.parametrize("node", ["head", "client1", "gpu1", "gpu2"])
def test_a_second_address_is_the_next_nodes(spec: LabSpec, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts: list[str] = []
    monkeypatch.setattr(faults, "_on_node", lambda spec, node, script: scripts.append(script))
    names = [n.name for n in spec.nodes]
    twin = names[(names.index(node) + 1) % len(names)]
    fault = faults.FAULTS["duplicate-address"]
    fault.plant(spec, spec.node(node), print)
    fault.clear(spec, spec.node(node), print)
    address = spec.fabric_address(spec.node(twin))
    assert address != spec.fabric_address(spec.node(node))
    assert scripts == [f"ip addr add {address}/32 dev fab0\n", f"ip addr del {address}/32 dev fab0 || true\n"]


def test_the_scripts_are_shell(tmp_path: Path) -> None:
    shell = shutil.which("dash") or "sh"
    for kind, fault in {**MORE_FAULTS, **NODE_FAULTS}.items():
        for script in (fault.plant, fault.clear):
            done = run([shell, "-n"], stdin=HEAD + script, check=False)
            assert done.returncode == 0, f"{kind}: {done.stderr}"


def test_docker_takes_the_training_container_along_and_both_come_back(tree: Path) -> None:
    of(tree, MORE_FAULTS["docker-stopped"].plant)
    back = of(tree, MORE_FAULTS["docker-stopped"].clear)
    assert back[-2:] == ["systemctl start docker.service", "systemctl start elastic-ai-training.service"]
