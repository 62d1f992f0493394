"""RoCE between virtual machines from end to end: provisioned by the project's playbooks, validated with real verbs.

A reduced set of site.yml's stages, so that it stays within minutes under emulation: base, fabric and the acceptance
probes. The other stages do nothing here that the containers of the other tests do not show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MACHINES, NEEDS_VMS, Lab, machines, toolkit

NAME = "itroce"
pytestmark = [
    pytest.mark.rest,
    NEEDS_VMS,
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of two machines and two containers with the fabric provisioned."""
    with machines(NAME, tmp_path_factory.mktemp("inventory") / NAME) as lab:
        yield lab


def verdict(lab: Lab, folder: Path, *args: str) -> tuple[int, dict, str]:  # type: ignore[type-arg]
    """Exit code, verdict and progress of one validation over roce40."""
    where = ["-i", lab.inventory, "--runs-dir", folder, "--json"]
    done = toolkit("validate", "--fabric", "roce40", *args, *where)
    assert done.stdout.strip(), done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def failing(document: dict) -> set[str]:  # type: ignore[type-arg]
    """Ids of the criteria that failed."""
    return {c["id"] for c in document["criteria"] if c["verdict"] == "fail"}


def test_the_fabric_of_machines_is_converged_and_recorded_at_once(lab: Lab):
    again = lab.playbook(name=MACHINES)
    assert again.returncode == 0, again.stdout[-3000:]
    assert set(re.findall(r"changed=(\d+)", again.stdout)) == {"0"}, again.stdout[-3000:]
    record = json.loads(lab.ssh("gpu1", "cat", "/etc/elastic-ai/provisioned.json"))
    assert "rxe_fab0" in record["stand_ins"], "the soft device belongs to what is not real"


def test_verbs_between_machines_are_measured_and_rehearsed(lab: Lab, tmp_path: Path):
    code, document, said = verdict(lab, tmp_path)
    assert code == 0, said
    assert document["sign_off"] == "REHEARSAL"
    criteria = {c["id"]: c for c in document["criteria"]}
    assert criteria["tr.rdmafn"]["verdict"] == "pass"
    assert criteria["tr.rdmabw"]["verdict"] == "not-measured"
    assert re.search(r"emulated.*measured [\d.]+ Gbit/s", criteria["tr.rdmabw"]["reason"])
    assert "DCB" in criteria["pf.lossless"]["reason"]


def test_an_infiniband_profile_is_refused_on_these_ports(lab: Lab, tmp_path: Path):
    done = toolkit("validate", "--fabric", "ib-edr", "-i", lab.inventory, "--runs-dir", tmp_path)
    assert done.returncode == 2
    assert "gpu1" in done.stderr
    assert "Ethernet" in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_is_wrong_with_a_node_is_found_before_anything_is_sent(lab: Lab, tmp_path: Path):
    planted = {"gpu1": "memlock-low", "gpu2": "dscp-unset"}
    for node, kind in planted.items():
        assert toolkit("lab", "fault", "set", "--name", lab.name, node, kind).returncode == 0
    try:
        code, document, said = verdict(lab, tmp_path, "--suite", "preflight")
    finally:
        for node in planted:
            toolkit("lab", "fault", "clear", "--name", lab.name, node)
    assert code == 1, said
    assert failing(document) == {"pf.memlock", "pf.lossless"}
    assert {f["about"]["ends"][0]["node"] for f in document["findings"]} == {"gpu1", "gpu2"}


def test_a_firewall_in_the_way_of_roce_is_found_at_its_node(lab: Lab, tmp_path: Path):
    where = ("--name", lab.name, "gpu2")
    assert toolkit("lab", "fault", "set", *where, "firewall-4791").returncode == 0
    try:
        code, document, said = verdict(lab, tmp_path, "--suite", "transport")
    finally:
        toolkit("lab", "fault", "clear", *where)
    assert code == 1, said
    assert "tr.rdmafn" in failing(document)
    assert failing(document) <= {"tr.rdmafn", "tr.rdmabw", "tr.rdmalat"}
