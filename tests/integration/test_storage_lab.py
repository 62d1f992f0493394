"""Storage in a lab of containers that declares one: a node that is slow there and a mount that does not answer are
found on their nodes, nobody else is blamed, and nothing is left.

ELASTIC_AI_CLEAN_RUNS: how many runs without a fault come first, of which none may blame anybody.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import NODES, Lab, toolkit

from toolkit.lab import lab as labs
from toolkit.lab.nodes import SHARED
from toolkit.lab.spec import read_faults
from toolkit.lab.storagefaults import STORAGE_FAULTS

pytestmark = [pytest.mark.rest, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab")]
NAME = "stores"
CLEAN = int(os.environ.get("ELASTIC_AI_CLEAN_RUNS", "1"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four containers with a storage; down again afterwards."""
    inventory = tmp_path_factory.mktemp("stores") / "inventory"
    up = toolkit("lab", "up", "--storage", "--name", NAME, "--inventory", inventory)
    try:
        assert up.returncode == 0, up.stderr
        made = Lab(NAME, inventory)
        done = made.playbook(name="tests/playbooks/machines.yml")
        assert done.returncode == 0, done.stdout[-6000:]
        for node in NODES:
            made.ssh(node, "DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends fio")
        yield made
    finally:
        toolkit("lab", "down", "--name", NAME)


def test_faults_of_a_storage_are_found_on_their_nodes_and_a_well_one_is_blamed_for_nothing(
    lab: Lab, tmp_path: Path
) -> None:
    words = [word for kind in STORAGE_FAULTS for word in ("--fault", kind)]
    words += ["--suite", "preflight", "--suite", "storage", "--clean", str(CLEAN), "--json"]
    done = toolkit(
        "lab",
        "drill",
        "--name",
        lab.name,
        "-i",
        lab.inventory,
        "--out",
        tmp_path / "drill",
        *words,
        timeout_s=2400 + 400 * CLEAN,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads(done.stdout)["drilled"]
    clean, drilled = ([one for one in runs if bool(one["kind"]) is planted] for planted in (False, True))
    assert [(one["blamed"], one["trouble"]) for one in clean] == [([], "")] * CLEAN, clean
    assert sorted(one["kind"] for one in drilled) == sorted(STORAGE_FAULTS)
    wrong = [one for one in drilled if not (one["found"] and one["localised"] and one["cause"]) or one["blamed"]]
    assert not wrong, wrong
    assert not read_faults(labs.load(lab.name))
    for node in NODES:
        assert lab.ssh(node, f"find {SHARED} -name '.toolkit-storage-*'") == "", "nothing is left"
        assert "fuse" not in lab.ssh(node, f"findmnt --noheadings --output FSTYPE --target {SHARED}")
