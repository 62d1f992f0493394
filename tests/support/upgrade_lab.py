"""A lab between two stack releases: `toolkit upgrade` and `toolkit rollback` of it, and what is on its nodes then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support.lease_lab import Lab, on_each, run_as, shell, until
from validation.base.project import ROOT

BIN = Path(sys.executable).parent
BOOT = "cat /proc/sys/kernel/random/boot_id"
LIMIT_S = 3600
DEB = "dpkg-query -W -f '${Version}' nvidia-container-toolkit"
RPM = "rpm -q --qf '%{VERSION}-%{RELEASE}' nvidia-container-toolkit"


@dataclass(frozen=True)
class Site:
    """The lab, its inventory, the runs with the accepted one, its nodes, and how a package's version is asked for."""

    lab: Lab
    inventory: Path
    runs: Path
    nodes: tuple[str, ...] = ("head", "client1", "gpu1", "gpu2")
    version: str = DEB

    def words(self, *words: str) -> list[str]:
        """`toolkit upgrade` or `toolkit rollback` of this site."""
        return [str(BIN / "toolkit"), *words, "-i", str(self.inventory), "--runs-dir", str(self.runs)]

    @staticmethod
    def environment() -> dict[str, str]:
        """Of a command: without colours."""
        return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1"}

    def ran(self, *words: str) -> tuple[int, str]:
        """Exit code and all that it said."""
        done = subprocess.run(
            self.words(*words), cwd=ROOT, env=self.environment(), text=True, capture_output=True, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
        print(done.stdout, done.stderr)
        return done.returncode, done.stdout + done.stderr

    def killed(self, after: str, *words: str, later_s: float = 0.0) -> str:
        """What it said until a line that begins so came; then it and all that it started are killed at once."""
        with subprocess.Popen(
            self.words(*words), cwd=ROOT, env=self.environment(), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
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

    @property
    def servers(self) -> list[str]:
        """The GPU servers."""
        return [node for node in self.nodes if node.startswith("gpu")]

    def releases(self) -> dict[str, tuple[str, str]]:
        """Of each GPU server the release on record, and the version of a package that differs."""
        found = {}
        for node, said in on_each(
            self.lab, self.servers, f"cat /etc/elastic-ai/provisioned.json; echo; {self.version}"
        ).items():
            record, _, version = said.strip().rpartition("\n")
            found[node] = (json.loads(record)["release"], version)
        return found

    def boots(self) -> dict[str, str]:
        """When each node was booted, by its id."""
        return on_each(self.lab, self.nodes, BOOT)

    def out_of_work(self) -> dict[str, str]:
        """Slurm's nodes that take no work, and their states."""
        said = shell(self.lab, "head", "sinfo --noheader --Node --partition=all --format='%N %T'")
        states = dict(line.split() for line in said.splitlines())
        return {node: state for node, state in states.items() if state not in ("idle", "mixed", "allocated")}

    def job(self, node: str) -> str:
        """A job of alice's on a node, until /tmp/go-on is there; its number."""
        wait = "until [ -e /tmp/go-on ]; do sleep 0.5; done"
        code, out = run_as(self.lab, "alice", f'sbatch --parsable -w {node} -t 60 -o /dev/null -D / --wrap "{wait}"')
        assert code == 0, out
        number = out.split(";")[0].strip().splitlines()[-1]
        until(lambda: self.state(number), "RUNNING", 120)
        return number

    def state(self, number: str) -> str:
        """Slurm's state of a job that it still lists in its queue."""
        return shell(self.lab, "head", f"squeue -h -j {number} -o %T").strip()

    def release(self, name: str) -> None:
        """The inventory names the release, and two nodes a batch."""
        self.declare(stack_release=name, reboot_batch=2)

    def declare(self, **variables: object) -> None:
        """The inventory names variables of all nodes."""
        file = self.inventory / "hosts.yml"
        tree = yaml.safe_load(file.read_text())
        tree["all"]["vars"] |= variables
        file.write_text(yaml.safe_dump(tree, sort_keys=False))


def ran_once(lab: Lab, number: str) -> list[str]:
    """How a job ended, by the accounting: the controller forgets it after some minutes. Requeued, it is there again."""
    return shell(lab, "head", f"sacct --noheader --allocations --duplicates --jobs={number} --format=State%20").split()
