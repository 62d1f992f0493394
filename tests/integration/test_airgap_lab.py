"""A lab whose nodes reach a mirror and nothing else: deployed, measured, reported, and one node more joins.

The mirror is of Debian 12 as this machine's own package sources have it; the vendors' packages are the lab's stand-ins.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Lab, toolkit, validation_of

from tests.support.lease_lab import shell
from tests.support.traces import traces
from toolkit.lab import lab as labs
from toolkit.lab import mirrored

pytestmark = [pytest.mark.rest, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab")]
NAME = "airgap"


def down() -> None:
    assert toolkit("lab", "down", "--name", NAME).returncode == 0


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror for a lab like the one below, made with this machine's network."""
    folder = tmp_path_factory.mktemp("mirror")
    if any(traces(NAME).values()):  # of a run that was cut off
        down()
    up = toolkit("lab", "up", "--nodes", "3", "--name", NAME, "--inventory", folder / "site")
    assert up.returncode == 0, up.stderr
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    made = toolkit("mirror", "build", folder / "medium", "-i", folder / "site", "--key", folder / "key", timeout_s=3600)
    down()
    assert made.returncode == 0, made.stdout + made.stderr
    assert toolkit("mirror", "verify", folder / "medium").returncode == 0
    return folder / "medium"


@pytest.fixture(scope="module")
def gapped(mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Bare nodes with no other network than the mirror."""
    inventory = tmp_path_factory.mktemp("gapped")
    up = toolkit("lab", "up", "--nodes", "3", "--name", NAME, "--inventory", inventory, "--mirror", mirror)
    try:
        assert up.returncode == 0, up.stderr
        yield Lab(NAME, inventory)
    finally:
        down()


def test_bare_nodes_become_a_measured_site_by_the_mirror_alone(gapped: Lab, mirror: Path, tmp_path: Path) -> None:
    lab, spec = gapped, labs.load(NAME)
    before = mirrored.denied(spec)
    shell(lab, "gpu1", "timeout 2 bash -c ': > /dev/tcp/192.0.2.1/80'; true")
    assert mirrored.denied(spec).get("192.0.2.1", 0) > before.get("192.0.2.1", 0)  # denied, and seen

    deployed = toolkit("deploy", "-i", lab.inventory, timeout_s=3600)
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    entries = shell(
        lab, "head", "grep -rh '^URIs:' /etc/apt/sources.list.d; cat /etc/apt/sources.list 2> /dev/null; true"
    )
    assert {line for line in entries.splitlines() if not line.startswith("#")} == {
        f"URIs: {mirrored.url(spec)}/packages/distribution/debian12/"
    }
    run = validation_of(lab.inventory, tmp_path / "runs", "--fabric", "tcp10")
    assert run.exit_code == 0, run
    assert list((tmp_path / "runs").glob("*/report.html"))
    signed = toolkit("sign", run.folder, "--key", mirror.parent / "key", "--as", "A. Test, of the lab")
    assert signed.returncode == 0, signed.stderr
    checked = toolkit("verify", run.folder)
    assert (checked.returncode, "REHEARSAL" in checked.stdout) == (0, True), checked.stdout + checked.stderr

    up = toolkit("lab", "up", "--name", NAME, "--add", "gpu3", "--inventory", lab.inventory)
    assert up.returncode == 0, up.stderr
    added = toolkit("node", "add", "gpu3", "-i", lab.inventory, "--runs-dir", tmp_path / "runs", timeout_s=3600)
    assert added.returncode == 0, added.stdout + added.stderr
    denied = mirrored.denied(spec)
    print("denied:", denied)
    assert not set(denied) - set(before) - {"192.0.2.1"}, "nothing asked for anything beside the mirror"


def test_a_damaged_file_is_named_before_a_node_asks_for_it(mirror: Path) -> None:
    file = next(mirror.glob("packages/distribution/debian12/pool/bash_*"))
    kept = file.read_bytes()
    try:
        file.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        checked = toolkit("mirror", "verify", mirror)
        assert checked.returncode == 1
        assert f"{file.name}: is damaged" in checked.stderr
    finally:
        file.write_bytes(kept)
