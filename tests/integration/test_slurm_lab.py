"""Validations as one job of the lab's own Slurm: whole suites, and a job that ends early or loses a server."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BIN, ROOT, Lab, Provisioned, toolkit

from tests.support.lab_runs import nothing_left, planned, result_ids

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("quiet")]
SLURM = ("--launcher", "slurm")
SERVERS = {"gpu1", "gpu2"}
BEGIN_S, ENDS_S = 300, 300  # until the first results, and from its job's end to its own: a busy machine


def begin(lab: Lab, runs: Path, *args: str, results: int = 3) -> tuple[subprocess.Popen[str], Path, str]:
    """A validation by Slurm in the background; its run directory once it has so many results, and its job."""
    words = [BIN / "toolkit", "validate", "--fabric", "tcp10", "-i", lab.inventory, "--runs-dir", runs]
    words += [*SLURM, "--format", "none", *args]
    process = subprocess.Popen([str(w) for w in words], cwd=ROOT, text=True, stderr=subprocess.PIPE)
    end = time.monotonic() + BEGIN_S
    while time.monotonic() < end:
        folders = list(runs.iterdir()) if runs.is_dir() else []
        if folders and len(result_ids(folders[0])) >= results:
            (job,) = lab.ssh("head", "squeue -h -n elastic-ai-validate -o %A").split()
            return process, folders[0], job
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    process.kill()
    raise AssertionError("the validation made no results")


def results(run: Path) -> list[dict[str, object]]:
    """Lines of results.jsonl, in their order."""
    return [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]


def ended(lab: Lab, job: str) -> str:
    """How a job ended, as the accounting has it once it is over."""
    for _ in range(60):
        state = lab.ssh("head", f"sacct -X -n -P -j {job} -o State").strip()
        if state.partition(" ")[0] not in ("RUNNING", "COMPLETING", "PENDING", ""):
            break
        time.sleep(0.5)
    return state


def steps(lab: Lab, job: str) -> int:
    """Steps that a job had, its own shell not counted."""
    return len(re.findall(r"\.\d+$", lab.ssh("head", f"sacct -n -P -j {job} -o JobID"), re.MULTILINE))


def free(lab: Lab) -> None:
    """Wait until Slurm has both servers idle again."""
    for _ in range(240):
        if lab.ssh("head", "sinfo -h -N -p all -o %T").split() == ["idle", "idle"]:
            return
        time.sleep(0.5)
    raise AssertionError(lab.ssh("head", "sinfo -N -l; squeue"))


def test_a_job_that_is_cancelled_keeps_its_results_and_another_goes_on(provisioned: Provisioned, tmp_path: Path):
    """scancel in mid-run: said by name, nothing is left, and `--resume` measures the rest and no more."""
    lab = provisioned.lab
    free(lab)
    process, run, job = begin(lab, tmp_path / "runs", "--suite", "preflight", "--without", "pf.converged")
    lab.ssh("head", f"scancel {job}")
    _, stderr = process.communicate(timeout=ENDS_S)
    assert process.returncode == 3, stderr
    assert f"Slurm job {job} was cancelled by somebody; what was measured is kept" in stderr
    assert ended(lab, job).startswith("CANCELLED")
    assert nothing_left(lab) == {}
    kept = [r["measurement"] for r in results(run) if r["status"] == "ok"]
    assert kept
    done = toolkit("validate", "--resume", run, *SLURM, "--json")
    assert done.returncode == 0, done.stderr
    again = re.search(r"Slurm job (\d+) holds gpu1, gpu2", done.stderr)
    assert again is not None, done.stderr
    assert again[1] != job
    assert ended(lab, again[1]) == "COMPLETED"
    assert steps(lab, again[1]) >= len(SERVERS)
    at_last = {r["measurement"]: r["status"] for r in results(run)}
    assert set(at_last.values()) == {"ok"}
    assert len(at_last) == len(planned(run).measurements)
    repeated = [r["measurement"] for r in results(run)]
    assert all(repeated.count(one) == 1 for one in kept)
    assert nothing_left(lab) == {}
