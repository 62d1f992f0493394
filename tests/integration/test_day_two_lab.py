"""A lab's life after its handover: a GPU server that fails is drained, and a head that is deleted comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BIN, NAME, Lab, toolkit

from tests.support import lost_head
from tests.support.lease_lab import shell, until
from tests.support.traces import traces

pytestmark = [pytest.mark.rest, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab")]
LAB = f"{NAME}-day-two"
POLICY = """
slurm_pool:
  users:
    research: {users: [alice]}
    teaching: {users: [bob], max_gpus_per_user: 1}
  native_jobs: [teaching]
"""
#: On client1: a lease of alice's that copies and verifies until /tmp/stop is there.
HOLD = """
mkdir -p /root/held; cd /
(runuser -u alice -- toolkit run --no-kernels -l gpu2 -p 1/7 -- bash -c 'cd /
  until [ -e /tmp/stop ]; do elastic-ai-copybench --bytes 64K --latency-count 2 > /dev/null || exit 9
  echo copied; sleep 5; done' > /root/held/a.log 2>&1
  echo "exit $?" >> /root/held/a.log) < /dev/null > /dev/null 2>&1 &
disown -a
"""
COPIED = "grep -c ^copied /root/held/a.log; true"
JOB = "cd /tmp; runuser -u bob -- sbatch --parsable -n1 --output=/dev/null --wrap 'sleep 7200'"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose head makes backups for a key beside it."""
    folder = tmp_path_factory.mktemp("lost")
    toolkit("lab", "down", "--name", LAB)  # of a run that was cut off
    up = toolkit("lab", "up", "--name", LAB, "--inventory", folder / "inventory")
    assert up.returncode == 0, up.stderr
    try:
        made = subprocess.run(["age-keygen", "-o", folder / "key"], capture_output=True, text=True, check=True)
        public = made.stderr.split()[-1]
        texts = {"pool.yml": POLICY, "backup.yml": f"backup_recipients: [{public}]\nhorovod_state: absent\n"}
        for name, text in texts.items():
            path = folder / "inventory/group_vars/all" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        lab = Lab(LAB, folder / "inventory")
        done = toolkit("deploy", "-i", lab.inventory, timeout_s=3600)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        yield lab
    finally:
        down = toolkit("lab", "down", "--name", LAB)
    assert down.returncode == 0, down.stderr
    assert not any(traces(LAB).values())


def copied(lab: Lab) -> int:
    """How often the program of the lease has copied; it has not ended."""
    assert "exit" not in shell(lab, "client1", "cat /root/held/a.log")
    return int(shell(lab, "client1", COPIED))


def users(lab: Lab) -> set[str]:
    """Classes of users, as Slurm has them."""
    return set(shell(lab, "head", "sacctmgr -nP list association format=account,user").split()) - {"root|", "root|root"}


def drained(lab: Lab) -> dict[str, str]:
    """Servers that take no work, with Slurm's reason."""
    said = shell(lab, "head", "sinfo --noheader --Node --partition=all --format='%N|%T|%E'")
    rows = [line.split("|") for line in said.splitlines()]
    return {name: reason for name, state, reason in rows if "drain" in state}


def test_a_server_that_fails_is_drained_within_a_minute_and_nobody_else(site: Lab, tmp_path: Path) -> None:
    lab = site
    words = [str(BIN / "toolkit"), "incidents", "-i", str(lab.inventory), "--do", "drain,support", "--runs-dir", "runs"]
    with (tmp_path / "log").open("w") as log:
        watch = subprocess.Popen(
            words, cwd=tmp_path, stdout=log, stderr=log, env=dict(os.environ, XDG_STATE_HOME=str(tmp_path))
        )
    try:
        time.sleep(60)  # some looks at servers that are well
        assert drained(lab) == {}
        planted = toolkit("lab", "fault", "set", "--name", LAB, "gpu1", "ecc")
        assert planted.returncode == 0, planted.stderr
        began = time.monotonic()
        until(lambda: list(drained(lab)), ["gpu1"], 300)
        print(f"from fault to drained: {time.monotonic() - began:.0f} s")
        assert "toolkit incidents: GPU" in drained(lab)["gpu1"]
        files = "elastic-ai-toolkit/deploy/*/incidents/support/*.tar.gz"
        until(lambda: len(list(tmp_path.glob(files))), 1, 600)
        until(lambda: "gpu1: stays drained: " in (tmp_path / "log").read_text(), True, 120)
        assert list(drained(lab)) == ["gpu1"]
    finally:
        watch.send_signal(signal.SIGINT)
        watch.wait(60)
        print((tmp_path / "log").read_text())
        toolkit("lab", "fault", "clear", "--name", LAB, "gpu1")
    shell(lab, "head", "scontrol update nodename=gpu1 state=resume")


def test_a_new_head_has_the_pool_and_its_leases_go_on(site: Lab, tmp_path: Path) -> None:
    lab = site
    old = int(shell(lab, "head", "cd /tmp; sbatch --parsable --wait --output=/dev/null --wrap true"))
    shell(lab, "client1", HOLD)
    kept = int(shell(lab, "head", JOB))
    until(lambda: copied(lab) > 0, True, 300)
    classes = users(lab)
    assert {"research|alice", "teaching|bob"} <= classes
    done = toolkit("backup", "-i", lab.inventory, "--to", tmp_path, timeout_s=600)
    assert done.returncode == 0, done.stderr
    (backup,) = tmp_path.glob("*.backup")
    late = int(shell(lab, "head", JOB))
    servers = ("gpu1", "gpu2")
    runs = "scontrol listpids; true"
    until(lambda: any(f" {late} " in shell(lab, node, runs) for node in servers), True, 120)

    lost_head.lost(LAB)
    lost_head.made_new(LAB)
    up = toolkit("lab", "up", "--name", LAB, "--inventory", lab.inventory)  # the new machine has another host key
    assert up.returncode == 0, up.stderr

    # a deployment without the state would end what runs
    refused = toolkit("deploy", "-i", lab.inventory, timeout_s=3600)
    assert refused.returncode == 1, refused.stdout
    assert "this head is new, and" in refused.stdout + refused.stderr
    assert "toolkit restore" in refused.stdout + refused.stderr
    before = copied(lab)

    began = time.monotonic()
    key = lab.inventory.parent / "key"
    done = toolkit("restore", backup, "--key", key, "-i", lab.inventory, timeout_s=3600)
    print(done.stdout, done.stderr, f"restored after {(time.monotonic() - began) / 60:.1f} minutes")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith(f"job {kept} of bob on gpu") and line.endswith("goes on")]
    assert [line for line in lines if " of alice on gpu2 goes on" in line]
    assert [line for line in lines if line.startswith(f"job {late} on gpu") and "ended: it began after" in line]

    until(lambda: copied(lab) > before, True, 300)
    history = dict(line.split("|")[:2] for line in shell(lab, "head", "sacct -aXnP --format=jobid,state").split())
    assert history[str(old)] == "COMPLETED"
    assert history[str(kept)] == "RUNNING"
    assert users(lab) == classes
    assert "AGE-SECRET" not in done.stdout + done.stderr
    assert shell(lab, "head", "ls -d /var/lib/elastic-ai/restore 2> /dev/null; true") == ""

    # its end is as ever, and the site is whole
    shell(lab, "client1", "touch /tmp/stop")
    until(lambda: "exit 0" in shell(lab, "client1", "cat /root/held/a.log"), True, 120)
    again = toolkit("deploy", "-i", lab.inventory, timeout_s=3600)
    assert again.returncode == 0, again.stderr
    assert [line.split(maxsplit=1)[1] for line in again.stdout.splitlines()] == ["ok: nothing changed"] * 4
