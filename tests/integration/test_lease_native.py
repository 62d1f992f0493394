"""Programs on a GPU server itself, on the lab: who has a part of a GPU opens it through his lease alone."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from conftest import Lab

from tests.support.lease_lab import json_in, run_as, shell, until

ATTEMPTS = Path(__file__).parents[2] / "validation" / "probes" / "remoting_attempts.py"
DEVICE = f"python3 -c {shlex.quote(ATTEMPTS.read_text('utf-8'))} device"
SRUN = "srun --quiet -n1 --mpi=none --chdir=/"
#: emulated libcuda where its file cannot be opened (engine/devices/seen.c): CUDA_ERROR_OPERATING_SYSTEM
CLOSED = 304
#: All GPUs of the lab have one file, which opens to whoever has one of them natively.
DEVICES = "/dev/shm/elastic-ai-devices"


def seen(lab: Lab, user: str, command: str, node: str = "client1") -> Any:
    """Devices that a program on gpu1 sees, or the CUresult of what was refused to it."""
    _code, out = run_as(lab, user, command, node)
    found = json.loads(next(line for line in reversed(out.splitlines()) if line.startswith("{")))
    return found.get("devices", found.get("code"))


def native(gres: str) -> str:
    return f"{SRUN} -p all -w gpu1 --mem=50 --time=2 --oversubscribe --gres={gres} {DEVICE}"


@pytest.mark.usefixtures("nothing_left")
def test_a_part_is_held_against_its_owners_own_programs(pool: Lab) -> None:
    assert pool.ssh("gpu1", f"stat -c '%a %U %G' {DEVICES}").strip() == "660 root elastic-ai-gpu"
    code, out = run_as(pool, "alice", "toolkit lease request -n 1 -p 1/4 -l gpu1 --time 1h --json")
    assert code == 0, out
    lease = json_in(out)["lease"]
    shown = run_as(pool, "alice", f"toolkit lease show {lease} --json")[1]
    assert "does not hold parts" not in shown
    # What is refused could work: a whole GPU natively, and only while the job runs. It comes before the job of parts:
    # when that ends, Slurm 22.05 takes the GPU for free of parts, gives it whole, and the Prolog refuses that.
    assert len(seen(pool, "alice", native("gpu:1"))) >= 1
    until(lambda: pool.ssh("gpu1", "ls /run/elastic-ai/gpu-users").strip(), "")
    step = f"{SRUN} --jobid={lease} --overlap --mem=0 {DEVICE}"
    assert seen(pool, "alice", step) == CLOSED, "a step in the lease's job"
    assert seen(pool, "alice", native("shard:1")) == CLOSED, "a job of parts beside it"
    assert seen(pool, "alice", DEVICE, "gpu1") == CLOSED, "a login"
    assert run_as(pool, "alice", f"toolkit run --lease {lease} -- elastic-ai-copybench --json --bytes 1M")[0] == 0
    assert run_as(pool, "alice", f"toolkit lease release {lease}")[0] == 0


@pytest.mark.usefixtures("nothing_left")
def test_a_policy_without_native_jobs_holds_on_the_server(pool: Lab) -> None:
    """Where the controller has no job_submit.lua; here its policy stays as it is, and the server's changes."""
    conf = "/etc/elastic-ai/remoting/server.json"
    change = r"""s/"native_jobs": *"whole"/"native_jobs": "none"/"""
    shell(pool, "gpu1", f"cp -p {conf} /root/server.json; sed -i '{change}' {conf}")
    try:
        assert '"none"' in pool.ssh("gpu1", f"cat {conf}")
        assert seen(pool, "alice", native("gpu:1")) == CLOSED
    finally:
        shell(pool, "gpu1", f"mv /root/server.json {conf}")
    assert len(seen(pool, "alice", native("gpu:1"))) >= 1
