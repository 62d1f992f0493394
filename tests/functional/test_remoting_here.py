"""`toolkit validate --here --suite remoting` on emulated GPUs: real engine, real links, and nothing of them stays."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.support.engine_run import ROOT, built, describe, local, wait_for
from tests.support.run_case import processes_of
from toolkit.engine import build, host_modules
from toolkit.here import topology_here, with_engine
from validation.measures.remoting.train import MadeLink, RemoteTrainFacts
from validation.model import Plan, Result, VerdictDoc
from validation.model.load import load_json
from validation.probes.shaped_link import looked

LACKS = build.missing_tools() or host_modules.lacks_compiler()
pytestmark = [pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}"), pytest.mark.engines]
NO_SPACES = looked()["trouble"]
spaces = pytest.mark.skipif(bool(NO_SPACES), reason=f"this machine makes no network namespaces: {NO_SPACES}")
WITHOUT_RIGHTS = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
DELAY_US = 500.0


def start(folder: Path, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    environment = {**os.environ, **describe(folder), "LD_LIBRARY_PATH": str(built() / "devices")}
    environment["PYTHONPATH"] = str(ROOT)
    command = [*before, sys.executable, "-m", "toolkit", "validate", "--here", "--quick", "--suite", "remoting"]
    return subprocess.Popen(
        [*command, *arguments], cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def run_of(folder: Path) -> tuple[Path, dict[str, tuple[MadeLink, RemoteTrainFacts]]]:
    """The run, and what its results say, by the link's name."""
    (run,) = (folder / "runs").iterdir()
    results = [Result.model_validate_json(line) for line in (run / "results.jsonl").read_text().splitlines()]
    planned = {m.id: MadeLink.of(m.params) for m in load_json(run / "plan.json", Plan).measurements}
    found = {}
    for one in results:
        link = planned[one.measurement]
        if link is not None:
            assert one.status == "ok", one.error
            facts = one.facts_of(RemoteTrainFacts)
            assert facts is not None
            found[link.name] = link, facts
    return run, found


def round_trip_us(facts: RemoteTrainFacts) -> float:
    return median(run.costs.synchronisation_us for run in facts.runs if run.way == "remote" and run.costs)


def left(folder: Path) -> list[str]:
    """Processes of a run in this folder, by the description of its GPUs in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder / "gpus.json").encode() in entry.read_bytes():
                found.append((entry.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@spaces
def test_native_and_remote_over_links_of_stated_rate_and_delay(tmp_path: Path) -> None:
    process = start(tmp_path, "--suite", "preflight", "--format", "html")
    _, err = process.communicate(timeout=240)
    assert process.returncode in (0, 3), err
    assert "links: between network namespaces, rate by tbf, delay by " in err
    run, found = run_of(tmp_path)
    assert set(found) == {"loopback", "10gbps-0us", "10gbps-500us"}
    for link, facts in found.values():
        assert facts.link is not None
        assert (facts.link.gbps, facts.link.delay_us) == (link.gbps, link.delay_us)
        assert facts.emulated
        assert facts.differing() == []
    far, near = round_trip_us(found["10gbps-500us"][1]), round_trip_us(found["loopback"][1])
    assert far >= 2 * DELAY_US > near
    verdict = load_json(run / "verdict.json", VerdictDoc)
    said = {c.id: c for c in verdict.criteria}
    assert (said["rm.same"].verdict, said["rm.ratio"].reason_code) == ("pass", "reported")
    assert verdict.sign_off in ("INSPECTION", "REHEARSAL")
    page = (run / "report.html").read_text()
    assert all(f'id="{name}-chart' in page or f"{name}-chart" in page for name in ("links", "links-delay"))
    assert "GPUs are emulated: not a GPU&#39;s figures" in page or "not a GPU's figures" in page
    assert left(tmp_path) == []


def test_without_the_right_to_namespaces_a_relay_makes_the_links_and_it_is_said(tmp_path: Path) -> None:
    if shutil.which("setpriv") is None or os.geteuid():
        before: tuple[str, ...] = ()
    else:
        before = WITHOUT_RIGHTS
    if not before and not NO_SPACES:
        pytest.skip("this machine cannot take the right away from a process")
    process = start(tmp_path, "--format", "none", "--details", before=before)
    out, err = process.communicate(timeout=240)
    assert "links: on loopback, rate and delay by a relay; no network namespaces: a network namespace cannot" in err
    _, found = run_of(tmp_path)
    link, facts = found["10gbps-500us"]
    assert (link.rate_by, link.delay_by) == ("relay", "relay")
    assert round_trip_us(facts) >= 2 * DELAY_US
    assert "takes processor time" in out
    assert left(tmp_path) == []


@spaces
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_however_it_ends(tmp_path: Path, how: signal.Signals) -> None:
    before = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    process = start(tmp_path, "--format", "none")
    wait_for(lambda: any("elastic-ai-relay" in line for line in left(tmp_path)), 60)
    assert any("elastic-ai-refserver" in line for line in left(tmp_path))
    process.send_signal(how)
    process.communicate(timeout=60)
    wait_for(lambda: left(tmp_path) == [], 20)
    after = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert not set(re.findall(r"^\d+: (near|far)\b", after, re.MULTILINE))
    assert len(after.splitlines()) <= len(before.splitlines()) + 4  # other labs of this machine come and go


def test_who_works_on_the_gpu_is_named_and_it_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    devices = describe(tmp_path, 1 << 30)
    holder = local(tmp_path, devices).start("start(); alloc(300 << 20); said(os.getpid()); sys.stdin.read()")
    try:
        holder.stdout.readline()  # type: ignore[union-attr]
        environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(built() / "devices")}
        asked: dict[str, Any] = {
            "server": "here", "batches": ["8"], "turns": 1, "steps": 4, "inputs": 16, "hidden": 8, "limit_s": 60,
            "engine": str(tmp_path / "engine"), "gbps": 0, "delay_us": 0, "rate_by": "", "delay_by": "",
        }  # fmt: skip

        def said(**more: Any) -> dict[str, Any]:
            words = [sys.executable, "-m", "validation.probes", "remoting-link", json.dumps({**asked, **more})]
            ran = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            found: dict[str, Any] = json.loads(ran.stdout)
            return found

        assert "begin a new run" in said()["error"]
        build.compile_engine(tmp_path / "engine", "test")
        (tmp_path / "engine/engine.json").write_text('{"engine": "reference", "release": "test"}')
        assert re.search(r"GPU \S+ is in use by process .*measure with --anyway", said()["error"])
        done = said(anyway=True)
        assert done["error"] is None
        assert done["facts"]["engine_release"] == "test"
    finally:
        holder.communicate()
    assert processes_of(str(tmp_path)) == []


def test_the_engine_is_built_once_and_kept_for_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolkit.engine import local_build

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = local_build.programs()
    made = (folder / "lib/libcuda.so.1").stat().st_mtime_ns
    assert local_build.programs() == folder
    assert (folder / "lib/libcuda.so.1").stat().st_mtime_ns == made
    (folder / "lib/libcuda.so.1").chmod(0o777)
    time.sleep(0.01)
    assert local_build.programs() == folder
    assert (folder / "lib/libcuda.so.1").stat().st_mtime_ns != made, "what others can write is not run"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_without_a_gpu_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    topology = topology_here()
    assert topology.here is not None
    if topology.here.gpus:
        pytest.skip("this machine has a GPU")
    assert with_engine(topology) == topology
    assert list(tmp_path.iterdir()) == []
