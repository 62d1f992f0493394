"""The pool's scheduler as its head sees it, asked by ssh. What is read is read by the leases' own parsers."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from toolkit.errors import UsageFault
from toolkit.lease.client.manage import Lease, leases
from toolkit.lease.jobs.slurm_json import parse_jobs
from toolkit.lease.jobs.slurm_text import PoolNode, SlurmJob, parse_nodes
from toolkit.lease.pool import is_lease
from toolkit.node.drain import DrainReason, IncidentDrain, UpgradeDrain
from validation.base import bounded, noise
from validation.model import Node, SshTarget, Topology

TIMEOUT_S = 90.0
ENGINE_MARKS = {
    "remoting_engine_sha256": "/opt/elastic-ai/engine/current/.sha256",
    "remoting_engine_torch_sha256": "/opt/elastic-ai/engine/beside/torch/current/.sha256",
    "remoting_engine_tensorflow_sha256": "/opt/elastic-ai/engine/beside/tensorflow/current/.sha256",
}
"""Where an installed engine says which archive it came from (plugins/modules/engine_artefact.py), by the inventory's
variable."""
_PLAIN = ("env", "LC_ALL=C", "SLURM_TIME_FORMAT=%s")


def ssh_words(target: SshTarget) -> list[str]:
    """ssh to a node, to be followed by a command; it asks nobody for a password."""
    key = ["-i", target.key_file] if target.key_file else []
    alive = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=10"]
    return ["ssh", *alive, *key, "-p", str(target.port), *target.extra_args, f"{target.user}@{target.host}"]


def answers(node: Node) -> bool:
    """Whether a node lets us in by ssh."""
    try:
        done = bounded.run([*ssh_words(node.ssh), "true"], most=bounded.STEADY_BYTES, timeout=30, where=node.name)
    except (subprocess.TimeoutExpired, bounded.TooMuch):
        return False
    return done.returncode == 0


def run_on(node: Node, words: Sequence[str], timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[bytes]:
    """A command on a node, as root. UsageFault where it does not answer."""
    sudo = [] if node.ssh.user == "root" else ["sudo", "-n"]
    marked = noise.Marked([*sudo, *_PLAIN, *words])
    try:
        done = bounded.run(
            [*ssh_words(node.ssh), marked.line],
            most=bounded.SLURM_BYTES, timeout=timeout_s, where=f"{node.name}: {words[0]}",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageFault(f"{node.name} did not answer within {timeout_s:.0f} s ({words[0]}); try again") from None
    if done.returncode == 255:
        raise UsageFault(f"{node.name} ({node.ssh.host}) does not answer by ssh: {last_words(done.stderr)}")
    done.stdout = marked.answer(done.stdout)
    return done


class Head:
    """The machine that runs the controller."""

    def __init__(self, topology: Topology) -> None:
        """UsageFault for an inventory without a head."""
        found = next((node for node in topology.nodes if "heads" in node.groups), None)
        if found is None:
            raise UsageFault(f"inventory {topology.site}: no host in group heads; the head knows the pool")
        self.node = found

    def run(self, words: Sequence[str], timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[bytes]:
        """A command there, as root. UsageFault where the head does not answer."""
        return run_on(self.node, words, timeout_s)

    def _asked(self, words: Sequence[str]) -> bytes:
        done = self.run(words)
        if done.returncode != 0:
            raise UsageFault(
                f"the pool's scheduler does not answer on {self.node.name}: {last_words(done.stderr)}; see systemctl "
                "status slurmctld there"
            )
        return done.stdout

    def nodes(self) -> dict[str, PoolNode]:
        """The pool's servers by name."""
        return {node.name: node for node in parse_nodes(self._asked(["scontrol", "show", "node"]).decode())}

    def jobs_on(self, name: str) -> list[SlurmJob]:
        """What runs on a server, leases and native jobs, those that are ending too."""
        jobs = parse_jobs(self._asked(["squeue", "--json", "--all", "--states=all"]))
        return [job for job in jobs if name in job.nodes and not job.ended and job.state != "PENDING"]

    def all_leases(self) -> list[Lease]:
        """The leases that the controller remembers, the ended ones of the last minutes too."""
        return leases(parse_jobs(self._asked(["squeue", "--json", "--all", "--states=all"])))

    def leases(self) -> int:
        """How many leases run in the whole pool; an array's parts are one."""
        jobs = parse_jobs(self._asked(["squeue", "--json", "--all", "--states=all"]))
        return len({job.lease for job in jobs if is_lease(job) and not job.ended and job.state != "PENDING"})

    def engine(self, variable: str) -> str:
        """SHA-256 of the archive of which the site has the remoting engine of that variable; "" where the head has
        none."""
        done = self.run(["cat", ENGINE_MARKS[variable]])
        return done.stdout.decode("ascii", "replace").strip().lower() if done.returncode == 0 else ""

    def drain(self, name: str, reason: DrainReason | UpgradeDrain | IncidentDrain) -> None:
        """No new work there; what runs goes on."""
        self._asked(["scontrol", "update", f"nodename={name}", "state=drain", f"reason={reason.text}"])

    def resume(self, name: str) -> None:
        """Work there again. A node that works already is not asked: Slurm refuses that, as after a killed command."""
        there = self.nodes().get(name)
        if there is not None and there.serves:
            return
        self._asked(["scontrol", "update", f"nodename={name}", "state=resume"])

    def end(self, job: SlurmJob, grace_s: int, lease: bool) -> None:
        """Take a lease back by its own way, its program told first; a native job by Slurm's, which has no grace."""
        if lease:
            words = ["toolkit", "lease", "release", str(job.lease), *(["--grace", str(grace_s)] if grace_s else [])]
        else:
            words = ["scancel", str(job.id)]
        done = self.run(words)
        if done.returncode != 0:
            raise UsageFault(f"job {job.id} of {job.user} could not be ended: {last_words(done.stderr)}")


def last_words(said: bytes) -> str:
    """The last line of what a command complained about."""
    return noise.last_words(said.decode("utf-8", "backslashreplace")) or "no words"
