"""A lab with emulated BMCs: what a validation reads of them, and the drill of the faults that they report.

A lab of containers of its own, on which nothing but the fabric and the probes is installed. The machines' part
(`pf.parts`) is in tests/functional/test_lab_bmc.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Lab, toolkit

from toolkit.lab import lab as labs
from toolkit.lab.bmc import rack
from toolkit.lab.bmc.bmcfaults import BMC_FAULTS
from toolkit.lab.drill import newest
from toolkit.lab.spec import read_faults

pytestmark = pytest.mark.rest
NAME = "bmcs"
FAULTS = [kind for kind, fault in BMC_FAULTS.items() if not fault.machine]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four containers with BMCs; down again afterwards."""
    inventory = tmp_path_factory.mktemp("bmcs") / "inventory"
    up = toolkit("lab", "up", "--bmc", "--name", NAME, "--inventory", inventory)
    try:
        assert up.returncode == 0, up.stderr
        made = Lab(NAME, inventory)
        done = made.playbook(name="tests/playbooks/machines.yml")
        assert done.returncode == 0, done.stdout[-6000:]
        yield made
    finally:
        toolkit("lab", "down", "--name", NAME)


def test_bmcs_are_read_and_their_faults_are_found_on_their_node_and_nobody_else_is_blamed(
    lab: Lab, tmp_path: Path
) -> None:
    out = tmp_path / "drill"
    words = [word for kind in FAULTS for word in ("--fault", kind)]
    where = ("--name", lab.name, "-i", lab.inventory, "--out", out)
    done = toolkit("lab", "drill", *where, *words, "--clean", "0", "--narrow", "--json", timeout_s=1200)
    assert done.returncode == 0, done.stderr
    drilled = json.loads(done.stdout)["drilled"]
    assert sorted(one["kind"] for one in drilled) == sorted(FAULTS)
    wrong = [one for one in drilled if not (one["found"] and one["localised"] and one["cause"]) or one["blamed"]]
    assert not wrong, wrong
    assert not read_faults(labs.load(lab.name))
    password = (rack.folder(labs.load(lab.name)) / rack.PASSWORD).read_text()
    assert not [path for path in out.rglob("*") if path.is_file() and password.encode() in path.read_bytes()]
    for folder in out.glob("turn-*"):
        criteria = {c.id: c for c in newest(folder).criteria}
        sick = {one["node"] for one in drilled if one["turn"] == folder.name}
        for id_ in ("pf.firmware", "pf.bios", "pf.power", "pf.bmc"):
            judged = {str(j.subject): j for j in criteria[id_].judgements}
            assert {name for name, one in judged.items() if one.verdict != "pass"} <= sick
            assert len(judged) == 4
            assert all("emulated BMC" in one.reason for one in judged.values())


def test_a_bmc_switches_its_nodes_power_and_the_node_boots_as_before(lab: Lab, tmp_path: Path) -> None:
    where = ("-i", lab.inventory, "--runs-dir", tmp_path, "--fabric", "tcp10", "--format", "none")
    done = toolkit("validate", *where, "--suite", "recovery", "--power-cycles", "2", timeout_s=900)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    (found,) = (c for c in newest(tmp_path).criteria if c.id == "rc.power")
    said = {str(one.subject): (one.verdict, one.text) for one in found.judgements}
    assert set(said) == {"gpu1", "gpu2"}, said
    for verdict, text in said.values():
        assert (verdict, text.startswith("PowerCycle by its BMC: 2 of 2 boots the same")) == ("pass", True), said
