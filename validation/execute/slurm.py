"""Probes as steps of one Slurm job, for sites that let nobody log in to their servers: the whole run is that job.

`salloc` holds the job: it runs a command here, or on the head over ssh, that ends when its stdin does. So the job ends
with the controller, even after kill -9. Each probe is a step, an `srun` whose stdin, stdout and stderr are the probe's;
what it prints arrives as it comes. Nodes that Slurm does not know (the head, clients) are reached by ssh.
"""

from __future__ import annotations

import asyncio
import getpass
import re
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from validation.base import bounded
from validation.base.counting import number_of
from validation.base.errors import RunError
from validation.execute.doors import Doors
from validation.execute.remote import Output, Remote, is_report, named
from validation.execute.ssh import PROVISION, SshLauncher, absent, explain, is_anchor, on_a_new_line, remote_command
from validation.model import Node, SshTarget
from validation.probes.__main__ import ANCHOR, digest

JOB_NAME = "elastic-ai-validate"
LOOK_S = 3.0  # between looks at a job that waits
GRANT_S = 60.0  # from the job's start to the first word of its holder
ASK_S = 60.0
ANSWER_S = 60.0  # until the probes of a node answer for the first time
ENDING_S = 30.0  # until a job that ends says how
EXIT_LOST = 255  # as ssh's, for a step that its job or node took along

_HOLD = r"""printf '\n{"ready": true, "mark": "MARK", "job": "%s"}\n' "$SLURM_JOB_ID"; exec cat >/dev/null"""
_OURS = "elastic-ai"  # begins each line that we ask of Slurm: login files of the head print lines too
_LOST = re.compile(
    r"^(?:srun|slurmstepd)\S*: .*(?:"
    r"\*\*\* (?:STEP|JOB) \S+ ON .* CANCELLED AT|Node failure on|has expired|Invalid job id|Unable to create step|"
    r"Unable to confirm allocation|already complet|Communication connection failure|Socket timed out|"
    r"Unable to contact slurm|Job (?:is|has been) (?:revoked|cancelled))",
    re.MULTILINE,
)
"""What srun and slurmstepd say of a step that did not end by itself (seen of 22.05.8; slurm_errno.c, srun)."""
_TASK = re.compile(rb"^srun: error: \S+: task \d+: .*\n", re.MULTILINE)
_GIVEN = re.compile(r"^salloc: (?:Pending|Granted) job allocation (\d+)", re.MULTILINE)
_NOTICE = b"srun: cluster configuration lacks support for cpu binding\n"
_DOWN = (
    "DOWN", "FAIL", "NO_RESPOND", "NOT_RESPONDING", "POWERED_DOWN", "UNKNOWN", "FUTURE", "INVAL", "ERROR", "EXTERNAL",
)  # fmt: skip
_SHUT = ("DRAIN", "MAINT", "RESERVED")
_ENDS = {
    "TIMEOUT": "reached its time limit of {limit}",
    "CANCELLED": "was cancelled by somebody",
    "PREEMPTED": "was preempted by another job",
    "NODE_FAIL": "lost a node and was ended by Slurm",
    "DEADLINE": "reached its deadline",
    "OUT_OF_MEMORY": "had too little memory",
}


@dataclass(frozen=True)
class Wanted:
    """The job. `minutes`: its time limit; `wait_s`: how long it may wait to start; `more`: the operator's own options
    of salloc, as partition and account, which stand last and so count."""

    minutes: int
    wait_s: float = 600.0
    more: tuple[str, ...] = ()


class _Step(Remote):
    """A probe in a step. One that its job or node took along ends with EXIT_LOST, as over a connection that is gone."""

    async def _watch(self) -> Output:
        output = await super()._watch()
        said = output.stderr.replace(_NOTICE, b"")
        whole = any(is_report(document) for document in output.documents())
        # of a node that died srun ends with 0, too
        if (output.returncode or not whole) and _LOST.search(said.decode("utf-8", "replace")):
            # a probe that is asked to end says so in a document, which is no result of its own
            return Output(EXIT_LOST, b"", _TASK.sub(b"", said), output.fault)
        return Output(output.returncode, output.stdout, said, output.fault)


class SlurmLauncher:
    """Launcher of one Slurm job. `say` is told what the job waits for, in one line."""

    def __init__(self, site: str, wanted: Wanted, say: Callable[[str], None]) -> None:
        """Nothing is submitted yet."""
        self._site, self._wanted, self._say = site, wanted, say
        self._ssh = SshLauncher(site)
        self._doors: Doors | None = None
        self._front: SshTarget | None = None  # None: Slurm's commands are on this machine
        self._names: dict[str, str] = {}  # node -> its name in Slurm
        self._holder: Remote | None = None
        self._probes: set[Remote] = set()
        self.job = ""

    # --- Slurm's commands -------------------------------------------------------------------------------------------

    async def _spawn(self, node: str, words: Sequence[str], step: str = "", most: int = bounded.PROBE_BYTES) -> Remote:
        """`step`: the probe whose step it is, in words."""
        made, line, what = _Step if step else Remote, ["env", "LC_ALL=C", *words], step or words[0]
        if self._doors is None:
            return await made.spawn(node, line, what=what, most=most)
        return await self._doors.spawn(node, line, made, what, most)

    async def _ask(self, *words: str) -> str:
        """What a command prints; RunError where it fails."""
        remote = await self._spawn("slurm", words, most=bounded.SLURM_BYTES)
        try:
            output = await asyncio.wait_for(remote.finish(), ASK_S)
        except asyncio.TimeoutError:
            await remote.stop()
            raise RunError(f"Slurm did not answer within {ASK_S:.0f} s ({words[0]}); is its controller up?") from None
        if output.fault:
            raise RunError(f"Slurm's answer cannot be used: {output.fault}")
        if output.returncode:
            raise RunError(f"Slurm does not answer: {_last(output)}; is its controller up?")
        return output.stdout.decode("utf-8", "replace")

    async def _states(self) -> dict[str, dict[str, tuple[str, str]]]:
        """Partition -> node -> (state, reason); the default partition first, with its `*`."""
        found: dict[str, dict[str, tuple[str, str]]] = {}
        for line in (await self._ask("sinfo", "-N", "-h", "-a", "-o", f"{_OURS}|%P|%N|%T|%E")).splitlines():
            mark, *parts = [part.strip() for part in line.split("|", 4)]
            if mark == _OURS and len(parts) == 4:
                found.setdefault(parts[0], {})[parts[1]] = parts[2].upper(), parts[3]
        return dict(sorted(found.items(), key=lambda item: not item[0].endswith("*")))

    # --- the launcher -----------------------------------------------------------------------------------------------

    async def connect(self, nodes: Sequence[Node]) -> dict[str, str]:
        """Reach the nodes that Slurm does not know by ssh, and hold the others in one job, which may wait.

        RunError where there is no Slurm, none of the nodes is in it, or the job does not start.
        """
        if shutil.which("salloc") is None:
            head = next((node for node in nodes if "heads" in node.groups), None)
            if head is None:
                raise RunError("Slurm's salloc is not on this machine, and no host of group heads is to be measured")
            self._front = head.ssh
            self._doors = Doors(head.ssh, lambda output: explain(head.ssh, output, self._site))
        states = await self._states()
        known = {name for each in states.values() for name in each}
        self._names = {n.name: s for n in nodes for s in (n.name, n.name.partition(".")[0]) if s in known}
        mine, others = [n for n in nodes if n.name in self._names], [n for n in nodes if n.name not in self._names]
        if not mine:
            raise RunError("Slurm knows none of these nodes; their names there are those of sinfo -N")
        troubles = {n.name: why for n in mine if (why := _unfit(self._names[n.name], states))}
        if others:
            self._say(f"by ssh, for Slurm does not know them: {', '.join(n.name for n in others)}")
            troubles |= await self._ssh.connect(others)
        if troubles:
            return troubles
        await self._hold(sorted(self._names.values()), states)
        found = await asyncio.gather(*(self._probes_of(n) for n in mine))
        return {n.name: why for n, why in zip(mine, found, strict=True) if why}

    async def _hold(self, names: Sequence[str], states: dict[str, dict[str, tuple[str, str]]]) -> None:
        """Submit the job and wait until it has begun."""
        more = self._wanted.more
        if not any(re.match(r"-p|--partition\b", word) for word in more):
            holding = [name for name, members in states.items() if set(names) <= set(members)]
            if not holding:
                raise RunError(f"no partition of Slurm has all of {', '.join(names)}; validate a part of them")
            more = (f"--partition={holding[0].rstrip('*')}", *more)
        words = ["salloc", f"--job-name={JOB_NAME}", f"--nodes={len(names)}", f"--nodelist={','.join(names)}",
                 "--exclusive", "--mem=0", "--no-kill", f"--time={self._wanted.minutes}", *more]  # fmt: skip
        mark = secrets.token_hex(8)
        hold = _HOLD.replace("MARK", mark)
        self._holder = holder = await self._spawn("slurm", [*words, "sh", "-c", hold], most=bounded.STEADY_BYTES)
        hello = asyncio.ensure_future(holder.first_document(lambda said: said.get("mark") == mark))
        began, told, since = time.monotonic(), "", ""
        try:
            while not hello.done():
                await asyncio.wait({hello}, timeout=LOOK_S)
                if hello.done():
                    break
                if (pending := _GIVEN.search(holder.said)) is not None:
                    since = await self._waiting_for(pending[1])
                if since and since != told:
                    self._say(f"{since}; at most {number_of(self._wanted.wait_s / 60, 'minute')}")
                    told = since
                waited = time.monotonic() - began
                if waited >= self._wanted.wait_s + (0 if told else GRANT_S):
                    raise RunError(f"{since or 'Slurm'}: no start within {_time(waited)}; nothing was measured")
        finally:
            if not hello.done() or hello.result() is None:
                hello.cancel()
                await self._take_back(holder)
                said = await holder.stop()
        document = hello.result()
        if document is None:
            raise RunError(f"Slurm does not take the job: {_last(said)}")
        self.job = str(document.get("job", ""))
        self._say(
            f"Slurm job {self.job} holds {', '.join(names)} for {number_of(self._wanted.minutes, 'minute')} at most"
        )

    async def _take_back(self, holder: Remote) -> None:
        """Cancel a job that waits: salloc does not look at its stdin before the job begins."""
        found = _GIVEN.search(holder.said)
        if found is not None and not holder.ended:
            with suppress(RunError):
                await self._ask("scancel", found[1])

    async def _waiting_for(self, job: str) -> str:
        """`Slurm job 12 waits: Resources`, "" where it does not."""
        with suppress(RunError):
            for line in (await self._ask("squeue", "-h", "-j", job, "-o", f"{_OURS}|%T|%r")).splitlines():
                mark, _, rest = line.strip().partition("|")
                state, _, reason = rest.partition("|")
                if (mark, state) == (_OURS, "PENDING"):
                    return f"Slurm job {job} waits: {_REASONS.get(reason, reason)}"
        return ""

    async def _probes_of(self, node: Node) -> str | None:
        """None where the node has the probes of this release; else one line."""
        remote = await self.start(node.name, [ANCHOR], held=False)
        try:
            hello = await asyncio.wait_for(remote.first_document(is_anchor), ANSWER_S)
        except asyncio.TimeoutError:
            await remote.stop()
            return f"its step in Slurm job {self.job} did not answer within {ANSWER_S:.0f} s"
        output = await remote.stop()
        if hello is None:
            said = output.stderr.decode("utf-8", "replace")
            if absent(said):
                return f"the acceptance probes are not installed; {PROVISION.format(site=self._site)}"
            return f"no step of Slurm job {self.job} runs there: {_last(output)}"
        if hello.get("probes_sha256") != digest():
            return f"its acceptance probes are of another release; {PROVISION.format(site=self._site)}"
        return None

    async def start(self, node: str, probe: Sequence[str], held: bool = True) -> Remote:
        """Start a probe in a step; where Slurm does not know the node, by ssh."""
        if node not in self._names:
            return await self._ssh.start(node, probe)
        target = self._front or SshTarget(host="localhost", user=getpass.getuser())
        inside = remote_command(target, ["--controlled", *probe] if held else list(probe))
        words = ["srun", f"--jobid={self.job}", "--overlap", "--nodes=1", "--ntasks=1", "--quiet", "--mpi=none",
                 f"--nodelist={self._names[node]}", "--mem=0", "--cpu-bind=none", "--chdir=/", "--unbuffered",
                 "sh", "-c", on_a_new_line(inside)]  # fmt: skip
        remote = await self._spawn(node, words, step=named(probe))
        self._probes = {p for p in self._probes if not p.ended} | {remote}
        return remote

    async def here(self, node: str, probe: Sequence[str]) -> Remote:
        """Start a probe on this machine."""
        return await self._ssh.here(node, probe)

    async def alive(self, node: str) -> str | None:
        """None where the job runs and Slurm has not given the node up."""
        if node not in self._names:
            return await self._ssh.alive(node)
        try:
            if (gone := await self._gone()) is not None:
                return gone
            states, name = await self._states(), self._names[node]
        except RunError as fault:
            return str(fault)
        found = next((each[name] for each in states.values() if name in each), ("UNKNOWN", ""))
        if any(word in found[0] for word in _DOWN) or found[0].endswith("*"):
            return f"Slurm has given it up: {_state(found)}"
        return None

    async def _gone(self) -> str | None:
        """How the job ended, in one line; None while it runs."""
        until = time.monotonic() + ENDING_S
        while True:
            said = await self._ask("scontrol", "show", "job", "-o", self.job)
            text = next((line for line in said.splitlines() if line.startswith(f"JobId={self.job} ")), "")
            state = re.search(r"\bJobState=(\w+)", text)
            if state is None or state[1] != "COMPLETING" or time.monotonic() > until:
                break
            await asyncio.sleep(1)  # how it ended is not said before its nodes are free
        limit = re.search(r"\bTimeLimit=(\S+)", text)
        if state is not None and state[1] in ("RUNNING", "CONFIGURING", "SUSPENDED"):
            return None
        how = _ENDS.get(state[1] if state else "", f"has ended ({state[1] if state else 'unknown'})")
        how = how.format(limit=limit[1] if limit else number_of(self._wanted.minutes, "minute"))
        return f"Slurm job {self.job} {how}; what was measured is kept, and --resume goes on in a new job"

    async def close(self) -> None:
        """Stop all probes, give the job back, end the connections."""
        await asyncio.gather(*(p.stop() for p in self._probes if not p.ended))
        if self._holder is not None and not self._holder.ended:
            await self._holder.stop()
        if self._doors is not None:
            await self._doors.close()
        await self._ssh.close()
        self._probes, self._holder = set(), None


_REASONS = {
    "Resources": "other jobs have its nodes (Resources)",
    "Priority": "other jobs are before it (Priority)",
    "PartitionTimeLimit": "the partition allows less time than it asks for (PartitionTimeLimit); give -t by --slurm",
    "AssocMaxJobsLimit": "its account has as many jobs as it may (AssocMaxJobsLimit)",
    "Reservation": "its nodes are reserved (Reservation)",
}


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _last(output: Output) -> str:
    return output.fault or output.last_words or f"exit status {output.returncode}"


def _state(found: tuple[str, str]) -> str:
    state, reason = found
    return state.lower() + (f" ({reason})" if reason and reason != "none" else "")


def _unfit(name: str, states: dict[str, dict[str, tuple[str, str]]]) -> str | None:
    """Why Slurm gives no job a node; None where it does, at once or later."""
    found = next(each[name] for each in states.values() if name in each)
    if any(word in found[0] for word in (*_DOWN, *_SHUT)) or found[0].endswith(("*", "$")):  # silent, maintenance
        return f"Slurm has it {_state(found)}; scontrol update nodename={name} state=resume, when it is well"
    return None


__all__ = ["JOB_NAME", "SlurmLauncher", "Wanted"]
