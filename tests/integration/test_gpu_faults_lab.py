"""Faults of emulated GPUs planted on a lab, a different one on each server at once: each is found, and nothing else.

A lab of its own with one GPU server that is well, on which nothing but the probes is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from conftest import Lab, toolkit, validation_of

from toolkit.engine import build, host_modules
from toolkit.lab import lab as labs
from toolkit.lab.gpufaults import GPU_FAULTS
from validation.model import VerdictDoc
from validation.model.load import load_json

LACKS = build.missing_tools() or host_modules.lacks_compiler()
pytestmark = [pytest.mark.rest, pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")]
NAME = "gpuf"
WELL = "gpu1"
NODES = 8  # a head, a client and six GPU servers
#: Suites, and server -> fault. Suite compute takes minutes, and no kernel of its own runs on emulated GPUs.
TURNS = (
    (
        ("preflight", "transport", "compute"),
        {"gpu2": "slow-gpu", "gpu3": "gpu-missing", "gpu4": "ecc", "gpu5": "throttled", "gpu6": "gpu-hang"},
    ),
    (
        ("preflight", "transport"),
        {"gpu2": "pcie-x8", "gpu3": "wrong-result", "gpu4": "gpu-xid", "gpu5": "gpu-illegal", "gpu6": "nvlink-missing"},
    ),
)
#: Found by words alone: of emulated GPUs no rate is judged.
NOT_JUDGED = {"slow-gpu": "tr.uniform"}


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab with the probes. Head and client alone have fabric ports: pairs of them are another test's."""
    inventory = tmp_path_factory.mktemp("gpu-faults") / "inventory"
    up = toolkit("lab", "up", "--name", NAME, "--nodes", str(NODES), "--inventory", inventory)
    try:
        assert up.returncode == 0, up.stderr
        lab, spec, hosts = Lab(NAME, inventory), labs.load(NAME), inventory / "hosts.yml"
        document = yaml.safe_load(hosts.read_text())
        for values in document["all"]["children"]["gpu_servers"]["hosts"].values():
            values["fabric_ports"] = []
            values["bom"] |= {"fabric_port_count": 0, "nic_model": None}
        hosts.write_text(yaml.safe_dump(document))
        for name in ("head", "client1"):
            address = spec.fabric_address(spec.node(name))
            lab.ssh(name, f"ip addr add {address}/24 dev fab0; ip link set fab0 mtu 9000 up")
        done = lab.playbook(name="playbooks/acceptance.yml")
        assert done.returncode == 0, done.stdout[-4000:]
        yield lab
    finally:
        down = toolkit("lab", "down", "--name", NAME)
    assert down.returncode == 0, down.stderr


def blamed(verdict: VerdictDoc, node: str) -> dict[str, str]:
    """Criteria that fail for a server, and why: by what was judged, or of all servers together by the words."""
    found: dict[str, str] = {}
    for criterion in verdict.criteria:
        for one in criterion.judgements:
            named = re.search(rf"\b{node}\b", f"{one.subject}" if "gpu" in str(one.subject) else one.reason)
            if one.verdict == "fail" and named:
                found[criterion.id] = one.reason
    return found


@pytest.mark.parametrize(("suites", "planted"), TURNS, ids=["first", "second"])
def test_each_planted_fault_is_found_on_its_server_and_nothing_else(
    probed: Lab, suites: tuple[str, ...], planted: dict[str, str], tmp_path: Path
) -> None:
    where = ("--name", probed.name)
    try:
        for node, kind in planted.items():
            done = toolkit("lab", "fault", "set", *where, node, kind)
            assert done.returncode == 0, done.stderr
        words = [word for suite in suites for word in ("--suite", suite)]
        run = validation_of(probed.inventory, tmp_path / "runs", "--fabric", "tcp10", *words, "--format", "none")
    finally:
        for node in planted:
            toolkit("lab", "fault", "clear", *where, node)
    verdict = load_json(run.folder / "verdict.json", VerdictDoc)
    assert run.exit_code == 1, run.stderr
    assert blamed(verdict, WELL) == {}
    wrong = {}
    for node, kind in planted.items():
        mine = blamed(verdict, node)
        wanted = set(GPU_FAULTS[kind].found_by) - {NOT_JUDGED.get(kind, "")}
        if set(mine) != wanted:
            wrong[f"{kind} on {node}, found by {', '.join(wanted) or 'words'}"] = mine
    assert not wrong
    assert not [f.text for f in verdict.findings if not any(node in str(f.about) for node in planted)]
    for node, kind in planted.items():
        criterion = next(c for c in verdict.criteria if c.id == NOT_JUDGED.get(kind, GPU_FAULTS[kind].found_by[0]))
        said = [j.reason for j in criterion.judgements if node in f"{j.subject} {j.reason}"]
        assert any("GPU 3" in why or "3 of 4 GPUs" in why or "1e:00.0" in why for why in said), (kind, said)
