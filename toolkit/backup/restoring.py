"""`toolkit restore`: a new head takes up what the lost one had, is deployed, and what ran is looked up."""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolkit.backup import archive, placing, there
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.inventory import declared
from toolkit.lease.jobs.slurm_json import parse_jobs
from toolkit.lease.jobs.slurm_text import SlurmJob
from toolkit.lease.pool import is_lease
from toolkit.node import checks, playbooks
from toolkit.node.head import Head, last_words, run_on, ssh_words
from validation.base import noise
from validation.base.errors import ToolkitError
from validation.model import Node, Topology

Say = Callable[[str], None]
STEPS = ("stage", "deploy", "finish")
SETTLED_S = 120.0
"""How long nodes have for their first word to the new controller: slurmd asks every half minute. Project default."""
TAKING_S = 1800.0
CLUSTER = "elastic-ai"
"""Name of a cluster whose inventory gives none, as roles slurm and backup have it."""
_BUNDLE = """import sys, types
for name in ("toolkit", "toolkit.backup", "toolkit.backup.placing"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["toolkit.backup"].placing = sys.modules["toolkit.backup.placing"]
exec(compile({placing!r}, "placing.py", "exec"), sys.modules["toolkit.backup.placing"].__dict__)
exec(compile({there!r}, "there.py", "exec"))
"""
AT_ONCE = 256
"""Nodes that are asked at once what runs there; one that is away holds its place for half a minute."""


class RestoreFault(ToolkitError):
    """A restoration that did not come to its end; the same command goes on."""


@dataclass(frozen=True)
class Asked:
    """What was asked. `replace`: also where the head has a pool already."""

    inventory: Path
    file: Path
    key: Path
    replace: bool = False
    ansible_options: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobOutcome:
    """What became of a job that was in the backup or ran on a node."""

    job: int
    user: str
    nodes: tuple[str, ...]
    lease: bool
    state: Literal["goes on", "waits", "ended", "runs"]
    why: str = ""

    @property
    def words(self) -> str:
        """One line."""
        what = "lease" if self.lease else "job"
        of = f" of {self.user}" if self.user else ""
        on = f" on {', '.join(self.nodes)}" if self.nodes else ""
        return f"{what} {self.job}{of}{on} {self.state}" + (f": {self.why}" if self.why else "")


@dataclass(frozen=True)
class Restored:
    """What was done. `silent`: nodes that could not be asked what runs there. `replaced`: folder of the head with what
    was there before; "" where nothing was."""

    header: archive.Header
    jobs: tuple[JobOutcome, ...]
    silent: tuple[str, ...]
    seconds: float
    finished: tuple[str, ...] = ()
    took: Mapping[str, float] = field(default_factory=dict)
    replaced: str = ""


def _made(note: Mapping[str, Any]) -> str:
    """When the backup of a restoration on the head was made."""
    return str(note.get("header", {}).get("made", "another time"))


def cluster_of(inventory: Path, head: str) -> str:
    """The name under which role backup makes backups."""
    return str(declared(inventory, head, "slurm_cluster_name") or CLUSTER)


def program() -> bytes:
    """The program of `there` with what it imports, as one text for Python alone."""
    placed, main = (Path(str(module.__file__)).read_text("utf-8") for module in (placing, there))
    return _BUNDLE.format(placing=placed, there=main).encode()


class Restoring:
    """One restoration. Everything that needs no change is refused first."""

    def __init__(self, asked: Asked, topology: Topology, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        """Refuses what cannot be read, and a backup of another head."""
        self.asked, self.topology, self.say, self.clock = asked, topology, say, clock
        checks.refuse_joined(topology, asked.inventory)
        self.head = Head(topology)
        if shutil.which("age") is None:
            raise UsageFault("age is not installed on this machine, which reads the backup: apt-get install age")
        say(f"reading {asked.file}")
        try:
            self.header = archive.verified(asked.file, asked.key)
        except archive.Unreadable as fault:
            raise UsageFault(f"{asked.file}: {fault}; nothing was changed") from None
        name, cluster = self.head.node.name, cluster_of(asked.inventory, self.head.node.name)
        if (self.header.head, self.header.cluster) != (name, cluster):
            raise UsageFault(
                f"{asked.file}: it is of head {self.header.head} of cluster {self.header.cluster}, and "
                f"{asked.inventory} has head {name} of cluster {cluster} (slurm_cluster_name); give the backup and the "
                "inventory of one site; nothing was changed"
            )
        with asked.file.open("rb") as stream:
            digest = hashlib.sha256()
            while data := stream.read(1 << 20):
                digest.update(data)
        self.sha256 = digest.hexdigest()

    def refuse_pool(self) -> None:
        """UsageFault where the head has something of its own, unless it is to be exchanged, or a Slurm that cannot read
        the backup's state."""
        state = self._asked("state")
        self._refuse_older(state["slurm"], state["offered"])
        begun, done = state["restore"], state["done"]
        if begun.get("sha256") == self.sha256:
            self.say("this restoration was begun before; going on")
            return
        pool = ["the state of a pool"] if state["pool"] or state["controller_runs"] else []
        if done.get("sha256") == self.sha256:
            has = "has taken this backup already, to the end"
        elif begun:
            has = f"is taking the backup of {_made(begun)}, whose own command goes on"
        elif done:
            has = f"has taken the backup of {_made(done)} already, to the end"
        else:
            has = f"has {', '.join(pool + state['has'])} already" if pool or state["has"] else ""
        if has and not self.asked.replace:
            raise UsageFault(
                f"{self.head.node.name} {has}; --replace puts the backup of {self.header.made} in its place, ends what "
                "began since, and keeps there what it replaces. Nothing was changed"
            )

    def _refuse_older(self, here: str, offered: str) -> None:
        if there.older(here, self.header.slurm):
            raise UsageFault(
                f"{self.head.node.name}: the backup is of Slurm {self.header.slurm} and this head has {here}: an older "
                "controller cannot read its state; install the release that the old head had. This command changed "
                "nothing"
            )
        if not here and there.older(offered, self.header.slurm):
            self.say(
                f"{self.head.node.name}: the backup is of Slurm {self.header.slurm}, and the package sources of this "
                f"head have {offered} now; unless the deployment adds a newer one, it stops before Slurm starts"
            )

    def running(self) -> tuple[dict[int, tuple[str, ...]], tuple[str, ...]]:
        """Job -> nodes where it runs, by the nodes' own daemons, which need no head; and who did not answer."""
        nodes = [node for node in self.topology.nodes if "gpu_servers" in node.groups]
        found: dict[int, list[str]] = {}
        with ThreadPoolExecutor(max(1, min(AT_ONCE, len(nodes)))) as workers:
            answers = list(zip(nodes, workers.map(_jobs_of, nodes), strict=True))
        for node, jobs in answers:
            for job in jobs or ():
                found.setdefault(job, []).append(node.name)
        silent = tuple(node.name for node, jobs in answers if jobs is None)
        return {job: tuple(names) for job, names in found.items()}, silent

    def go(self) -> Restored:
        """All of it. RestoreFault, PlaybookFault where it stops; the same command goes on."""
        began, took = self.clock(), dict[str, float]()
        self.refuse_pool()
        ran, silent = self.running()
        since = time.time()
        for step in STEPS:
            at = self.clock()
            self.say(f"{self.head.node.name}: {_WORDS[step]}")
            if step == "stage":
                self._stage(max(ran, default=0))
            elif step == "deploy":
                playbooks.run(playbooks.SITE, self.asked.inventory, None, self.asked.ansible_options)
            else:
                ended = self._asked("finish", TAKING_S)
            took[step] = round(self.clock() - at, 1)
        jobs = self._outcomes(ran, since)
        finished, kept = tuple(ended["finished"]), str(ended["replaced"])
        return Restored(self.header, jobs, silent, round(self.clock() - began, 1), finished, took, kept)

    def _stage(self, highest: int) -> None:
        """The decrypted backup goes through ssh into the head's own folder; no key of it is written here. highest: of
        the jobs that run, whose numbers are not given again."""
        age = archive.decrypting(self.asked.file, self.asked.key)
        try:
            self._asked("stage", TAKING_S, [self.sha256, str(highest)], age.stdout)
        finally:
            age.kill()
            age.wait()

    def _asked(
        self, verb: str, timeout_s: float = 60.0, words: Sequence[str] = (), stream: Any = None
    ) -> dict[str, Any]:
        """The program of `there` on the head, with the backup on its stdin behind it."""
        source = program()
        boot = f"import sys;SOURCE=sys.stdin.buffer.read({len(source)});exec(compile(SOURCE,'restore','exec'))"
        node = self.head.node
        sudo = [] if node.ssh.user == "root" else ["sudo", "-n"]
        marked = noise.Marked([*sudo, "env", "LC_ALL=C", "python3", "-I", "-B", "-c", boot, verb, *words])
        process = subprocess.Popen(
            [*ssh_words(node.ssh), marked.line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(source)
                if stream is not None:
                    shutil.copyfileobj(stream, process.stdin, 1 << 20)
                process.stdin.flush()
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise RestoreFault(f"{node.name} did not answer within {timeout_s:.0f} s ({verb}); run it again") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        answer = next(iter(noise.documents(marked.answer(out))), None)
        if answer is None:
            raise UsageFault(f"{node.name} ({node.ssh.host}): {last_words(err)}")
        if "refused" in answer:
            raise RestoreFault(f"{node.name}: {answer['refused']}", Exit.FAILED)
        return answer

    def _outcomes(self, ran: Mapping[int, tuple[str, ...]], since: float) -> tuple[JobOutcome, ...]:
        """What became of each job that ran on a node before, or that the controller had from the backup."""
        deadline = self.clock() + SETTLED_S
        while True:
            jobs = parse_jobs(self.head.run(["squeue", "--json", "--all", "--states=all"]).stdout)
            found = outcomes(ran, jobs, since)
            unsettled = [one for one in found if one.why == _UNSETTLED]
            if not unsettled or self.clock() > deadline:
                return found
            time.sleep(5)


def _jobs_of(node: Node) -> set[int] | None:
    """Of which jobs processes run on a node, by its own daemon; None where it does not answer."""
    try:
        said = run_on(node, ["scontrol", "listpids"], 30).stdout.decode("utf-8", "replace")
    except ToolkitError:
        return None
    rows = [line.split() for line in said.splitlines()[1:]]
    return {int(row[1]) for row in rows if len(row) > 2 and row[1].isdigit()}


_UNSETTLED = "its node has not answered yet"
_WORDS = {"stage": "taking the backup", "deploy": "deploying the site", "finish": "figures, images and runs"}


def outcomes(ran: Mapping[int, tuple[str, ...]], jobs: Sequence[SlurmJob], since: float) -> tuple[JobOutcome, ...]:
    """Pure: what ran on nodes against what the controller has now; `since`: when the restoration began, in seconds
    since 1970. A job that the controller ends later than that was one of the backup's."""
    known = {job.id: job for job in jobs}
    found = []
    for job in jobs:
        if job.state == "PENDING":
            found.append(JobOutcome(job.id, job.user, (), is_lease(job), "waits"))
        elif not job.ended:
            why = "" if job.id in ran or not ran else _UNSETTLED
            found.append(JobOutcome(job.id, job.user, job.nodes, is_lease(job), "goes on", why))
        elif job.id in ran or (job.end is not None and job.end >= since):
            away = "" if job.id in ran else ", for it was not on its node any more when the head came back"
            found.append(JobOutcome(job.id, job.user, job.nodes, is_lease(job), "ended", job.state.lower() + away))
    for number, nodes in sorted(ran.items()):
        if number not in known:
            why = "it began after the backup was made, so the new head does not know it"
            found.append(JobOutcome(number, "", nodes, False, "ended", why))
    return tuple(sorted(found, key=lambda one: one.job))


def quoted(asked: Asked) -> str:
    """The command that goes on."""
    file = f"./{asked.file}" if str(asked.file).startswith("-") else str(asked.file)
    words = ["toolkit", "restore", file, "-i", str(asked.inventory), "--key", str(asked.key)]
    words += ["--replace"] if asked.replace else []
    return shlex.join([*words, *(["--", *asked.ansible_options] if asked.ansible_options else [])])
