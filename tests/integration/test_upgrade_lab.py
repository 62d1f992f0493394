"""A lab goes from the release before to today's and back, batch by batch, while jobs of others go on: the command is
killed in every step, one node is rebooted with its batch, and a batch that is worse than the accepted run stops it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from conftest import BIN, ROOT, Lab, toolkit, validation_of

from tests.support.lease_lab import on_each, run_as, shell, until
from tests.support.traces import traces

pytestmark = pytest.mark.rest
NAME = "upgrades"
OLD, NEW = "rehearsal-previous", "rehearsal"
#: What the two releases differ in, of NVIDIA's container toolkit.
PACKAGE = {OLD: "1.18.2-1", NEW: "1.19.1-1"}
NODES = ("head", "client1", "gpu1", "gpu2")
SERVERS = ("gpu1", "gpu2")
BOOT = "cat /proc/sys/kernel/random/boot_id"
LIMIT_S = 3600


@dataclass(frozen=True)
class Site:
    """The lab, and the runs with the accepted one."""

    lab: Lab
    runs: Path

    def words(self, *words: str) -> list[str]:
        """`toolkit upgrade` or `toolkit rollback` of this site."""
        return [str(BIN / "toolkit"), *words, "-i", str(self.lab.inventory), "--runs-dir", str(self.runs)]

    def ran(self, *words: str) -> tuple[int, str]:
        """Exit code and all that it said."""
        done = toolkit(*self.words(*words)[1:], timeout_s=LIMIT_S)
        print(done.stdout, done.stderr)
        return done.returncode, done.stdout + done.stderr

    def killed(self, after: str, *words: str, later_s: float = 0.0) -> str:
        """What it said until a line that begins so came; then it and all that it started are killed at once."""
        env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1"}
        with subprocess.Popen(
            self.words(*words), cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as running:  # fmt: skip
            said = []
            try:
                for line in running.stdout or ():
                    said.append(line)
                    if line.startswith(after):
                        time.sleep(later_s)
                        break
            finally:
                os.killpg(running.pid, signal.SIGKILL)
        assert said[-1].startswith(after), "".join(said)
        return "".join(said)

    def releases(self) -> dict[str, tuple[str, str]]:
        """Of each GPU server the release on record, and the version of a package that differs."""
        look = "cat /etc/elastic-ai/provisioned.json; dpkg-query -W -f '\\n${Version}' nvidia-container-toolkit"
        found = {}
        for node, said in on_each(self.lab, SERVERS, look).items():
            record, _, version = said.rpartition("\n")
            found[node] = (json.loads(record)["release"], version)
        return found

    def boots(self) -> dict[str, str]:
        """When each node was booted, by its id."""
        return on_each(self.lab, NODES, BOOT)

    def out_of_work(self) -> dict[str, str]:
        """Slurm's nodes that take no work, and their states."""
        said = shell(self.lab, "head", "sinfo --noheader --Node --partition=all --format='%N %T'")
        states = dict(line.split() for line in said.splitlines())
        return {node: state for node, state in states.items() if state not in ("idle", "mixed", "allocated")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lab that was provisioned with the older release and accepted; it goes without a trace."""
    folder = tmp_path_factory.mktemp("upgrades")
    if any(traces(NAME).values()):  # of a run that was cut off
        assert toolkit("lab", "down", "--name", NAME).returncode == 0
    up = toolkit("lab", "up", "--name", NAME, "--inventory", folder / "inventory")
    assert up.returncode == 0, up.stderr
    try:
        lab = Lab(NAME, folder / "inventory")
        release(lab, OLD)
        done = toolkit("deploy", "-i", lab.inventory, timeout_s=LIMIT_S)
        assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
        suites = [word for suite in ("preflight", "as-built", "transport") for word in ("--suite", suite)]
        accepted = validation_of(lab.inventory, folder / "runs", "--fabric", "tcp10", *suites, "--format", "html")
        assert accepted.exit_code == 0, accepted.stderr
        yield Site(lab, folder / "runs")
    finally:
        down = toolkit("lab", "down", "--name", NAME)
    assert down.returncode == 0, down.stderr
    assert not any(traces(NAME).values())


def release(lab: Lab, name: str) -> None:
    """The inventory names the release, and two nodes a batch."""
    file = lab.inventory / "hosts.yml"
    tree = yaml.safe_load(file.read_text())
    tree["all"]["vars"] |= {"stack_release": name, "reboot_batch": 2}
    file.write_text(yaml.safe_dump(tree, sort_keys=False))


def job(lab: Lab, node: str) -> str:
    """A job of alice's on a node, until /tmp/go-on is there; its number."""
    wait = "until [ -e /tmp/go-on ]; do sleep 0.5; done"
    code, out = run_as(lab, "alice", f'sbatch --parsable -w {node} -t 60 -o /dev/null -D / --wrap "{wait}"')
    assert code == 0, out
    number = out.split(";")[0].strip().splitlines()[-1]
    until(lambda: shell(lab, "head", f"squeue -h -j {number} -o %T").strip(), "RUNNING", 120)
    return number


def test_an_upgrade_goes_on_wherever_it_was_killed_and_comes_back(site: Site) -> None:
    lab, before = site.lab, site.boots()
    assert site.releases() == dict.fromkeys(SERVERS, (OLD, PACKAGE[OLD]))
    number = job(lab, "gpu2")
    shell(lab, "gpu2", "mkdir -p /run/elastic-ai/reboot-required; echo planted > /run/elastic-ai/reboot-required/test")

    code, said = site.ran("upgrade", "--to", NEW, "--dry-run")
    assert code == 0, said
    assert re.search(r"^gpu2 +container toolkit 1\.18\.2 to 1\.19\.1$", said, re.MULTILINE), said
    assert f"waits for: job {number} of alice" in said
    assert re.search(r"^gpu2 +waits for a reboot already: test: planted \(reboot\)$", said, re.MULTILINE), said
    assert "1 node to be rebooted" in said
    assert "batch 3 of 3: gpu2" in said
    assert site.out_of_work() == {}, "nothing was changed"

    # Killed in each step of a batch: the next command says where it is and goes on there.
    upgrade = ("upgrade", "--to", NEW)
    began = time.monotonic()
    site.killed("batch 1 of 3 (head): drain", *upgrade)
    site.killed("batch 2 of 3 (client1, gpu1): deploy", *upgrade, later_s=20)
    code, said = site.ran(*upgrade, "--dry-run")
    assert (code, "batch 2 of 3: client1, gpu1  in deploy" in said) == (0, True), said
    site.killed("batch 2 of 3 (client1, gpu1): validate", *upgrade, later_s=5)
    site.killed("batch 2 of 3 (client1, gpu1): resume", *upgrade)
    site.killed("batch 3 of 3 (gpu2): drain", *upgrade, later_s=5)
    assert shell(lab, "head", f"squeue -h -j {number} -o %T").strip() == "RUNNING", "it is waited for"
    assert site.out_of_work() == {"gpu2": "draining"}
    assert site.boots() == before
    shell(lab, "gpu2", "touch /tmp/go-on")
    code, said = site.ran(*upgrade)
    print(f"upgrade with five kills: {(time.monotonic() - began) / 60:.1f} minutes")
    assert code == 0, said
    assert f"next: write stack_release: {NEW} into" in said
    assert site.releases() == dict.fromkeys(SERVERS, (NEW, PACKAGE[NEW]))
    until(site.out_of_work, {}, 120)
    assert {node for node, boot in site.boots().items() if boot != before[node]} == {"gpu2"}, (
        "one reboot, with its batch"
    )
    record = shell(lab, "head", f"scontrol show job --oneliner {number}")
    assert ("JobState=COMPLETED" in record, "Restarts=0" in record) == (True, True), record
    release(lab, NEW)

    # And back, with the head last; the jobs of others go on.
    shell(lab, "gpu2", "rm -f /tmp/go-on")  # gone with the reboot
    number = job(lab, "gpu2")
    began = time.monotonic()
    site.killed("batch 1 of 3 (client1, gpu1): deploy", "rollback", later_s=10)
    site.killed("batch 2 of 3 (gpu2): drain", "rollback")
    assert shell(lab, "head", f"squeue -h -j {number} -o %T").strip() == "RUNNING"
    shell(lab, "gpu2", "touch /tmp/go-on")
    code, said = site.ran("rollback")
    print(f"rollback with two kills: {(time.monotonic() - began) / 60:.1f} minutes")
    assert code == 0, said
    assert site.releases() == dict.fromkeys(SERVERS, (OLD, PACKAGE[OLD]))
    until(site.out_of_work, {}, 120)
    record = shell(lab, "head", f"scontrol show job --oneliner {number}")
    assert ("JobState=COMPLETED" in record, "Restarts=0" in record) == (True, True), record
    release(lab, OLD)


def test_a_batch_that_is_worse_than_the_accepted_run_stops_it_and_stays_drained(site: Site) -> None:
    lab = site.lab
    planted = toolkit("lab", "fault", "set", "--name", NAME, "gpu1", "nccl-pinned")
    assert planted.returncode == 0, planted.stderr
    code, said = site.ran("upgrade", "--to", NEW)
    assert code == 1, said
    assert "pf.ncclenv" in said
    assert site.out_of_work() == {"gpu1": "drained"}
    assert "toolkit upgrade: failed in validate" in shell(lab, "head", "scontrol show node gpu1")
    assert site.releases()["gpu2"] == (OLD, PACKAGE[OLD]), "later batches are untouched"
    cleared = toolkit("lab", "fault", "clear", "--name", NAME, "gpu1")
    assert cleared.returncode == 0, cleared.stderr
    code, said = site.ran("upgrade", "--to", NEW)
    assert code == 0, said
    until(site.out_of_work, {}, 120)
    assert site.releases() == dict.fromkeys(SERVERS, (NEW, PACKAGE[NEW]))
