"""One lab with emulated BMCs and a switch: one signed report of parts, firmware, cables and switch ports, and each
planted fault of them is found on its node.

A lab of containers of its own, on which nothing but the fabric and the probes is installed. A container has no parts
of its own, so `pf.parts` compares nothing there: the report lists them by the BMC.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Lab, toolkit

from tests.support.signing_case import make_key
from toolkit.lab import lab as labs
from toolkit.lab.bmc import rack
from toolkit.lab.bmc.bmcfaults import BMC_FAULTS
from toolkit.lab.drill import newest
from toolkit.lab.faults import FAULTS
from toolkit.lab.leaf import leaf
from toolkit.lab.leaf.leaffaults import LEAF_FAULTS
from toolkit.lab.spec import read_faults
from toolkit.rundir import runs

pytestmark = pytest.mark.rest
NAME = "parts"
PLANTED = [*(kind for kind, fault in BMC_FAULTS.items() if not fault.machine), *LEAF_FAULTS, leaf.CROSSED]
PASSES = ("pf.firmware", "pf.bios", "pf.power", "pf.sel", "pf.bmc", "pf.cabling", "pf.switch")
NODES = {"head", "client1", "gpu1", "gpu2"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four containers with BMCs and a switch; down again afterwards."""
    inventory = tmp_path_factory.mktemp("parts") / "inventory"
    up = toolkit("lab", "up", "--bmc", "--switch", "--name", NAME, "--inventory", inventory)
    try:
        assert up.returncode == 0, up.stderr
        made = Lab(NAME, inventory)
        done = made.playbook(name="tests/playbooks/machines.yml")
        assert done.returncode == 0, done.stdout[-6000:]
        yield made
    finally:
        toolkit("lab", "down", "--name", NAME)


def secrets(lab: Lab) -> list[bytes]:
    spec = labs.load(lab.name)
    return [(rack.folder(spec) / rack.PASSWORD).read_bytes(), (leaf.folder(spec) / leaf.PASSWORD).read_bytes()]


def test_one_signed_report_has_parts_firmware_cables_and_switch_ports(lab: Lab, tmp_path: Path) -> None:
    where = ("-i", lab.inventory, "--fabric", "tcp10", "--runs-dir", tmp_path / "runs")
    words = ("--suite", "preflight", "--suite", "transport", "--without", "pf.converged")
    done = toolkit("validate", *where, *words, timeout_s=900)
    assert done.returncode in (0, 3), done.stderr
    (run,) = runs(tmp_path / "runs")
    criteria = {c.id: c for c in newest(tmp_path / "runs").criteria}
    for id_ in PASSES:
        judged = {str(j.subject): (j.verdict, j.reason) for j in criteria[id_].judgements}
        assert set(judged) == NODES, id_
        assert {verdict for verdict, _ in judged.values()} == {"pass"}, (id_, judged)
    wanted = {name: f"leaf1 Eth1/{labs.load(lab.name).node(name).number}" for name in NODES}
    for id_, word in (("pf.cabling", ""), ("pf.switch", "emulated switch"), ("pf.firmware", "emulated BMC")):
        for j in criteria[id_].judgements:
            assert word in j.reason
            assert id_ == "pf.firmware" or wanted[str(j.subject)] in j.reason
    report = json.loads((run / "report.json").read_text())
    listed = {one["node"]: one for one in report["parts"]}
    assert set(listed) == NODES
    assert all(one["service_tag"] for one in listed.values())
    html = (run / "report.html").read_text()
    for words_ in (*(one["service_tag"] for one in listed.values()), "leaf1 Eth1/4", "pf.switch"):
        assert words_ in html, words_
    key = make_key(tmp_path / "key")
    signed = toolkit("sign", run, "--key", key, "--as", "Rehearsal, Virtual lab")
    assert signed.returncode == 0, signed.stderr
    packed = toolkit("bundle", run)
    assert packed.returncode == 0, packed.stderr
    public = key.with_suffix(".pub").read_text()
    (tmp_path / "signers").write_text(f"* {public}")
    bundle = run.with_name(f"{run.name}.zip")
    verified = toolkit("verify", bundle, "--allowed-signers", tmp_path / "signers")
    assert "Rehearsal, Virtual lab" in verified.stdout + verified.stderr
    assert verified.returncode in (0, 3), verified.stdout
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path != key]
    assert not [path for path in kept if any(secret in path.read_bytes() for secret in secrets(lab))]


def test_each_planted_fault_is_found_and_named_and_nobody_else_is(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "drill"
    words = [word for kind in PLANTED for word in ("--fault", kind)]
    where = ("--name", lab.name, "-i", lab.inventory, "--out", out)
    done = toolkit("lab", "drill", *where, *words, "--clean", "0", "--narrow", "--json", timeout_s=1800)
    assert done.returncode == 0, done.stderr
    drilled = json.loads(done.stdout)["drilled"]
    assert sorted(one["kind"] for one in drilled) == sorted(PLANTED)
    wrong = [one for one in drilled if not (one["found"] and one["localised"] and one["cause"]) or one["blamed"]]
    assert not wrong, wrong
    spec = labs.load(lab.name)
    assert not read_faults(spec)
    for folder in out.glob("turn-*"):
        mine = [one for one in drilled if one["turn"] == folder.name]
        sick = {one["node"] for one in mine}
        sick |= {spec.after(spec.node(one["node"])).name for one in mine if one["kind"] == leaf.CROSSED}
        failed = {c.id: c for c in newest(folder).criteria if c.verdict == "fail"}
        assert set(failed) == {id_ for one in mine for id_ in FAULTS[one["kind"]].found_by}
        named = {str(j.subject) for c in failed.values() for j in c.judgements if j.verdict == "fail"}
        assert named == sick
