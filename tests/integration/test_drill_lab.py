"""The short drill on a lab: ten faults, several at once, each found on the very part with its cause, nobody blamed.

A lab of its own, on whose nodes nothing but the probes is installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Lab, toolkit

from toolkit.engine import build, hostcode
from toolkit.lab import lab as labs
from toolkit.lab.drillplan import SHORT
from toolkit.lab.spec import FABRIC_MTU, read_faults

LACKS = build.missing_tools() or hostcode.lacks_compiler()
pytestmark = [pytest.mark.rest, pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")]
NAME = "drill"
NODES = 8  # three sick ports at once
RATE = "0.2"  # Gbit/s: four pairs at a time, which the processors of a small machine carry
#: What is not provisioned is not asked for.
ABSENT = ("fabric", "base", "tuning", "kernel", "docker", "slurm", "monitoring", "horovod", "firewall", "roce", "ofed")


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab with the probes; its fabric ports have address and MTU by hand."""
    inventory = tmp_path_factory.mktemp("drill") / "inventory"
    up = toolkit("lab", "up", "--name", NAME, "--nodes", str(NODES), "--rate", RATE, "--inventory", inventory)
    try:
        assert up.returncode == 0, up.stderr
        lab, spec = Lab(NAME, inventory), labs.load(NAME)
        (inventory / "group_vars").mkdir(exist_ok=True)
        (inventory / "group_vars/all.yml").write_text("".join(f"{role}_state: absent\n" for role in ABSENT))
        for node in spec.nodes:
            address = spec.fabric_address(node)
            lab.ssh(node.name, f"ip addr add {address}/24 dev fab0; ip link set fab0 mtu {FABRIC_MTU} up")
        done = lab.playbook(name="playbooks/acceptance.yml")
        assert done.returncode == 0, done.stdout[-4000:]
        yield lab
    finally:
        down = toolkit("lab", "down", "--name", NAME)
    assert down.returncode == 0, down.stderr


def test_ten_faults_are_found_localised_and_named_and_nobody_else_is_blamed(probed: Lab, tmp_path: Path) -> None:
    """A drill of ten faults in two validations, and one without a fault, by the command that an operator has."""
    words = ("--name", NAME, "-i", probed.inventory, "--out", tmp_path / "drill", "--json")
    clean = toolkit("lab", "drill", *words, "--clean", "1", "--suite", "preflight", timeout_s=1800)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    done = toolkit("lab", "drill", *words, "--clean", "0", timeout_s=3000)
    found = {one["kind"]: one for one in json.loads(done.stdout)["drilled"] if one["kind"]}
    assert set(found) == set(SHORT)
    wrong = {kind: one for kind, one in found.items()
             if not (one["found"] and one["localised"] and one["cause"]) or one["blamed"]}  # fmt: skip
    assert not wrong, wrong
    assert done.returncode == 0, done.stderr
    assert not read_faults(labs.load(NAME))
    assert len(list((tmp_path / "drill").glob("turn-*"))) == 2
