"""Faults of a lab's storage: the slow node is accused and no other, a mount that does not answer is given up there.

What fio would print is constructed. The mount that does not answer is a real one, of the server that the lab's nodes
get, and the real probe touches it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import plan_of, verdict_of
from tests.support.storage_documents import alone, healthy_storage, joined, measured, report, site, watcher
from tests.support.tool_documents import doc
from toolkit.errors import LabError
from toolkit.lab import drill, drillplan, faults, storagefaults
from toolkit.lab.inventory import STORAGES
from toolkit.lab.nodes import SHARED, shared_folder
from toolkit.lab.spec import LabSpec, make_spec
from validation.model import Measurement, Result, Storage, VerdictDoc

pytestmark = pytest.mark.computes
REPO = Path(__file__).parents[2]
SICK = "gpu2"
SLOW = round(storagefaults.SLOW_GB_S * 1e9)
NAMES = ("head", "client1", "gpu1", "gpu2")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabSpec:
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path / "state"))
    made = make_spec("x", 3, 4, 1, storage=True)
    shared_folder(made).mkdir(parents=True)
    return made


def said(m: Measurement, kind: str) -> Result:
    """What a measurement comes to in a lab whose storage is as fast as most disks, and sick on one node."""
    silent = {"silent": f"{SHARED} did not answer in 10 s (the first look)"}
    if m.kind == "storage-alone" and m.nodes[0] == SICK:
        if kind == "storage-hangs":
            made = {"name": m.params["name"], "node": SICK, "path": SHARED, **silent}
            return measured(m, doc(m.kind, json.dumps(made), {"ops": 0, "fio": "fio-3.33"}, tool="fio"))
        if kind == "storage-slow":
            return measured(m, alone(m, {"read": SLOW, "write": SLOW, "one-read": SLOW, "one-write": SLOW}))
    if m.kind != "storage-alone" and kind == "storage-hangs":
        make: Any = watcher if m.kind == "storage-shared" else report
        well = m.model_copy(update={"nodes": tuple(node for node in m.nodes if node != SICK)})
        each = {node: make(well, node) for node in well.nodes}
        return measured(
            m, joined(m, {**each, SICK: {"name": m.params["name"], "node": SICK, "path": SHARED, **silent}})
        )
    return healthy_storage(m)


def judged(kind: str) -> VerdictDoc:
    topology = site(*(Storage.model_validate(one) for one in STORAGES), names=NAMES)
    plan = plan_of(topology, ("storage",))
    return verdict_of(topology, plan, [said(m, kind) for m in plan.measurements])


@pytest.mark.parametrize("kind", ["", *storagefaults.STORAGE_FAULTS])
def test_the_sick_node_is_named_and_nobody_else(spec: LabSpec, kind: str) -> None:
    verdict = judged(kind)
    of = {c.id: {str(j.subject): j.verdict for j in c.judgements} for c in verdict.criteria}
    for id_ in ("st.read", "st.write"):
        wanted = {"": "pass", "storage-slow": "fail", "storage-hangs": "not-measured"}[kind]
        assert of[id_] == {f"{name}, lab": wanted if name == SICK else "pass" for name in NAMES}
    assert {end.node for f in verdict.findings for end in f.about.ends} == ({SICK} if kind == "storage-slow" else set())
    if kind:
        turn = drillplan.Turn("turn-1", ((kind, spec.node(SICK)),), ("storage",))
        (one,) = drill.weighed(turn, verdict, 1.0)
        assert (one.found, one.localised, one.cause, one.blamed) == (True, True, True, ()), one


def test_they_are_faults_of_a_lab_that_declares_a_storage(spec: LabSpec) -> None:
    (turn,) = drillplan.turns(spec, storagefaults.STORAGE_FAULTS)
    assert turn.suites == ("preflight", "storage")
    without = make_spec("x", 3, 4, 1)
    for kind in storagefaults.STORAGE_FAULTS:
        assert faults.FAULTS[kind].nodes == "containers with storage"
        with pytest.raises(LabError, match="'toolkit lab up --storage' does"):
            faults.check(without, without.node("gpu1"), kind)
    with pytest.raises(LabError, match="which machines do not have"):
        make_spec("x", 3, 4, 1, vms=True, storage=True)


@pytest.fixture
def groups(spec: LabSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tree of a node's groups below cgroup v1, as plain files."""
    monkeypatch.setattr(storagefaults, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(storagefaults, "BLOCK", tmp_path / "block")
    monkeypatch.setattr(storagefaults, "detect", lambda: type("Host", (), {"systemd": False})())
    at = shared_folder(spec).stat().st_dev
    disk = tmp_path / "block" / f"{os.major(at)}:{os.minor(at)}"
    disk.mkdir(parents=True)
    node = tmp_path / "cgroup/blkio/elastic-ai-lab/x/gpu2"
    (node / "docker").mkdir(parents=True)
    for folder in (node, node / "docker"):
        for name in storagefaults.LIMITS:
            (folder / name).write_text("")
    return node


def test_a_node_is_limited_with_all_its_groups_and_let_go(spec: LabSpec, groups: Path) -> None:
    at = shared_folder(spec).stat().st_dev
    for bytes_per_s, written in ((SLOW, SLOW), (None, 0)):
        storagefaults.limit(spec, spec.node(SICK), bytes_per_s)
        for folder in (groups, groups / "docker"):
            for name in storagefaults.LIMITS:
                assert (folder / name).read_text() == f"{os.major(at)}:{os.minor(at)} {written}"
    with pytest.raises(LabError, match="cgroups limit no disk"):
        storagefaults.limit(spec, spec.node("gpu1"), SLOW)


def test_of_a_partition_its_disk_is_limited(spec: LabSpec, groups: Path, tmp_path: Path) -> None:
    whole = tmp_path / "devices/vda"
    (whole / "vda1").mkdir(parents=True)
    (whole / "dev").write_text("254:0\n")
    (whole / "vda1/partition").write_text("1\n")
    at = shared_folder(spec).stat().st_dev
    link = tmp_path / "block" / f"{os.major(at)}:{os.minor(at)}"
    link.rmdir()
    with pytest.raises(LabError, match="is on no disk of its own"):
        storagefaults.disk(spec)
    link.symlink_to(whole / "vda1")
    assert storagefaults.disk(spec) == "254:0"


HANGING = """
import os, subprocess, sys, time
path, server = sys.argv[1:]
hangs = subprocess.Popen([sys.executable, "-c", server])
while not any(" - fuse " in line and path in line for line in open("/proc/self/mountinfo")):
    if hangs.poll() is not None:
        sys.exit(77)
    time.sleep(0.05)
from validation.measures.storage.storage_alone_probe import Asked, probe
try:
    document = probe(Asked(name="lab", path=path, node="gpu2", token="t", ops=["read"], answer_s=1.0,
                           size_mib=1, streams=1, seconds=1, ramp_s=0, files=1))
    print(document["stdout"])
finally:
    hangs.kill()
    hangs.wait()
"""


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="needs root and /dev/fuse")
def test_a_real_mount_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    server = storagefaults.SERVER.replace(SHARED, str(folder))
    words = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", HANGING, str(folder), server]
    done = subprocess.run(
        words, cwd=REPO, env={**os.environ, "PYTHONPATH": str(REPO)}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip(f"no FUSE file system can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["silent"] == f"{folder} did not answer in 1 s (the first look)"
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
