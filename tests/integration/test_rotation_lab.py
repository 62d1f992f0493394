"""Munge key and registry certificates of a lab are exchanged while a job and a lease run; the command is killed too."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from conftest import BIN, NODES, Lab, toolkit

from tests.support.lease_lab import on_each, shell, until

pytestmark = [pytest.mark.rest, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab")]
#: A job whose steps begin all the time: each is a credential of munge.
STEPS = """cd /tmp; runuser -u bob -- sbatch --parsable -n1 --mem=100 --output=/tmp/steps.%j --wrap '
  until [ -e /tmp/stop-steps ]; do srun -n1 true || echo refused; echo step; sleep 2; done'"""
#: On client1: a lease of alice's that copies and verifies until /tmp/stop-lease is there.
HOLD = """
mkdir -p /root/rotated; cd /
(runuser -u alice -- toolkit run --no-kernels -l gpu2 -p 1/7 -- bash -c 'cd /
  until [ -e /tmp/stop-lease ]; do elastic-ai-copybench --bytes 64K --latency-count 2 > /dev/null || exit 9
  echo copied; sleep 2; done' > /root/rotated/log 2>&1
  echo "exit $?" >> /root/rotated/log) < /dev/null > /dev/null 2>&1 &
disown -a
"""
LEASE = "cd /; runuser -u alice -- toolkit run --no-kernels -l gpu1 -p 1/7 -- elastic-ai-copybench --bytes 64K"
KEY = "sha256sum < /etc/munge/munge.key"
OPENED = "ls /etc/elastic-ai/slurm/rotation /etc/elastic-ai/registry/rotation 2> /dev/null; true"
IMAGE = 'import json; print(json.load(open("/etc/elastic-ai/training/image.json"))["reference"])'
PULL = f"docker pull --quiet $(python3 -c '{IMAGE}')"


@pytest.fixture(autouse=True)
def no_traces(pool: Lab) -> Iterator[None]:
    """Nor of an earlier try."""
    on_each(pool, NODES, "rm -rf /tmp/stop-lease /tmp/stop-steps /root/rotated /tmp/steps.*; echo")
    yield
    on_each(pool, NODES, "touch /tmp/stop-lease /tmp/stop-steps; echo")
    until(lambda: pool.ssh("head", "squeue", "--noheader").strip(), "", 120)
    on_each(pool, NODES, "rm -rf /tmp/stop-lease /tmp/stop-steps /root/rotated /tmp/steps.*; echo")


def copied(lab: Lab) -> int:
    """How often the lease's program has copied; it has not ended."""
    said = shell(lab, "client1", "cat /root/rotated/log")
    assert "exit" not in said
    return said.count("copied")


def keys(lab: Lab) -> set[str]:
    """SHA-256 of the munge key of each node; credentials go between the head and each."""
    for node in NODES[1:]:
        sealed = shell(lab, "head", "munge --no-input").strip()
        assert "Success" in shell(lab, node, f"echo '{sealed}' | unmunge --metadata=- | head -1")
        sealed = shell(lab, node, "munge --no-input").strip()
        assert "Success" in shell(lab, "head", f"echo '{sealed}' | unmunge --metadata=- | head -1")
    return {shell(lab, node, KEY) for node in NODES}


def killed(lab: Lab, after_s: float) -> None:
    """The command and all that it started, some time after its begin."""
    words = [str(BIN / "toolkit"), "rotate", "-i", str(lab.inventory)]
    process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_job_and_a_lease_run_through_both_rotations(pool: Lab) -> None:
    lab = pool
    job = shell(lab, "head", STEPS).strip()
    shell(lab, "client1", HOLD)
    until(lambda: copied(lab) > 0, True, 300)
    steps = f"cat /tmp/steps.{job}"
    node = shell(lab, "head", f"squeue --noheader --format=%N --jobs={job}").strip()
    until(lambda: "step" in shell(lab, node, f"{steps} 2> /dev/null; true"), True, 60)
    before = keys(lab)
    authority = shell(lab, "head", "sha256sum < /etc/elastic-ai/registry/ca.crt")
    assert len(before) == 1

    plan = toolkit("rotate", "-i", lab.inventory, "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert "2 jobs would go on" in plan.stdout
    assert keys(lab) == before

    began = time.monotonic()
    done = toolkit("rotate", "-i", lab.inventory)
    print(done.stdout, f"{time.monotonic() - began:.0f} s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 jobs went on" in done.stdout
    after = keys(lab)
    assert len(after) == 1
    assert after != before
    assert shell(lab, "head", "sha256sum < /etc/elastic-ai/registry/ca.crt") != authority
    for server in ("gpu1", "gpu2"):
        shell(lab, server, PULL)  # by the new certificates

    # killed somewhere, three times: the next call ends it
    for _ in range(3):
        killed(lab, random.uniform(1.5, 18))
        ended = toolkit("rotate", "-i", lab.inventory)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert len(keys(lab)) == 1
        assert shell(lab, "head", OPENED) == ""
        assert "State=DOWN" not in shell(lab, "head", "scontrol show partition --oneliner")

    # both went on all the time, and new ones begin
    seen, said = copied(lab), shell(lab, node, steps)
    assert "refused" not in said, said
    until(lambda: copied(lab) > seen, True, 60)
    until(lambda: len(shell(lab, node, steps)) > len(said), True, 60)
    shell(lab, "client1", "touch /tmp/stop-lease")
    shell(lab, node, "touch /tmp/stop-steps")
    until(lambda: "exit 0" in shell(lab, "client1", "cat /root/rotated/log"), True, 120)
    until(lambda: shell(lab, "head", f"sacct -aXnP -j {job} --format=state").strip(), "COMPLETED", 60)

    shell(lab, "client1", LEASE)

    # a node that was away when the certificates were exchanged takes them by its deployment
    left = toolkit("rotate", "registry", "-i", lab.inventory, "--without", "gpu2")
    assert left.returncode == 3, left.stdout + left.stderr
    again = toolkit("deploy", "-i", lab.inventory, timeout_s=1800)
    assert again.returncode == 0, again.stderr
    others = [line for line in again.stdout.splitlines() if not line.startswith("gpu2 ")]
    assert [line.split(maxsplit=1)[1] for line in others] == ["ok: nothing changed"] * 3, (
        "as if nobody had touched a file"
    )
    shell(lab, "gpu2", PULL)
