"""All GPU servers are read again and again; one that fails is drained at once, and a process of its own mends it."""

from __future__ import annotations

import contextlib
import math
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.incident.faults import Fault, Seen, cure_of, judged, reason_of
from toolkit.incident.state import Incident, Kept, now, since
from toolkit.incident.steps import Step
from toolkit.inventory import Site, read_site
from toolkit.lease.jobs.slurm_text import PoolNode
from toolkit.node import checks
from toolkit.node.drain import IncidentDrain, drained_by_incident, drained_by_slurm
from toolkit.node.head import Head, run_on
from validation.base import noise
from validation.base.counting import number_of
from validation.base.errors import ToolkitError
from validation.base.project import python_words
from validation.kinds import PROBE_PYTHON
from validation.kinds.parsing import ParseError, as_facts
from validation.measures.gpu.health import GpuHealthFacts
from validation.model import Node

Say = Callable[[str], None]
AT_ONCE = 256
"""Nodes that are read at once; one that hangs has its place for READ_S."""
SILENT_AT_ONCE = 64
"""The same of nodes that did not answer the last time: they take nobody's place, and no look waits for them."""
AGAIN_S = 86400.0
"""A server that fails again within a day of its last incident's end is not given back by itself. Project default."""
MOST_WORDS = 300
"""Of what a node says of itself, in characters."""
READ_S = 25.0
"""For one node's answer. With two times EVERY_LIMIT_S below the minute in which a fault is to be drained."""
ENDING_S = 3.0
EVERY_LIMIT_S = 15
"""The longest time from the begin of one look to that of the next. Project default."""


@dataclass(frozen=True)
class Asked:
    """What was asked. `steps`: what may be done; empty is a dry run. `most_percent`: of the pool's servers."""

    inventory: Path
    steps: tuple[Step, ...]
    most_percent: float
    every_s: float
    runs_dir: Path
    accepted: str | None = None
    grace_s: int | None = None
    once: bool = False


def read_node(node: Node) -> GpuHealthFacts | str:
    """What a node's GPUs and kernel log report, or why it was not read."""
    words = [PROBE_PYTHON, "-I", "-m", "validation.probes", "gpu-health", "{}"]
    try:
        done = run_on(node, words, READ_S)
        said = next((one for one in noise.documents(done.stdout) if "facts" in one), None)
        if said is None:
            return "its acceptance probes did not answer; deploy it"
        return as_facts(GpuHealthFacts, said["facts"], "gpu-health")
    except (ToolkitError, ParseError) as fault:  # whatever one node says, the others are read
        return noise.printable(str(fault))[:MOST_WORDS]


def allowed(pool: Mapping[str, PoolNode], most_percent: float) -> int:
    """How many more servers may be taken out: at least one of a pool that is whole, be it the only one, and never
    beyond the share. Of the number as it was written: 29 percent of 100 servers are 29, and 28 in binary fractions."""
    out = sum(not node.serves for node in pool.values())
    share = len(pool) * Fraction(repr(most_percent)) // 100
    return max(share, min(len(pool), 1)) - out


def can_be_ours(there: PoolNode) -> bool:
    """Whether a server with a fault may be drained for it: it takes work, or Slurm itself drained it for what failed
    there, such as the Epilog of a lease whose GPU was lost."""
    return there.serves or drained_by_slurm(there.state, there.reason)


def beyond(pool: Mapping[str, PoolNode]) -> str:
    """In words, where no more may be taken out."""
    out = sum(not one.serves for one in pool.values())
    return f"NOT drained, because --most allows no more: out of service {out} of {number_of(len(pool), 'server')}"


class Watch:
    """The loop over one site."""

    def __init__(self, asked: Asked, say: Say, read: Callable[[Node], GpuHealthFacts | str] | None = None) -> None:
        """UsageFault for a site whose Slurm is another's, or that has no GPU server."""
        self.asked, self.say, self.read = asked, say, read or read_node
        self.site: Site = read_site(asked.inventory)
        checks.refuse_joined(self.site.topology, asked.inventory)
        self.head = Head(self.site.topology)
        self.kept = Kept(asked.inventory)
        self.seen: dict[str, Seen] = self.kept.seen(say)
        self.nodes = [node for node in self.site.topology.nodes if "gpu_servers" in node.groups]
        if not self.nodes:
            raise UsageFault(f"{asked.inventory}: no host in group gpu_servers")
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self._told: dict[str, str] = {}
        self._workers = ThreadPoolExecutor(min(AT_ONCE, len(self.nodes)))
        self._silent_workers = ThreadPoolExecutor(min(SILENT_AT_ONCE, len(self.nodes)))
        self._reading: dict[str, Future[GpuHealthFacts | str]] = {}
        self._silent: set[str] = set()

    def run(self) -> list[Incident]:
        """Until Ctrl-C, or with `once` two looks (what is a state counts at the second). Its incidents."""
        try:
            return self._looks()
        finally:
            for workers in (self._workers, self._silent_workers):
                workers.shutdown(wait=False, cancel_futures=True)
            self._end_children()

    def unaccepted(self) -> str:
        """Why no mended server could be given back, "" where one could or is not to be: a server that is restarted for
        nothing, and then stays out, is worse than a refusal."""
        if "accept" not in self.asked.steps:
            return ""
        runs_dir, topology = self.asked.runs_dir.resolve(), self.site.topology
        try:
            checks.accepted_run(runs_dir, self.asked.accepted, topology, "a mended server")
        except ToolkitError as fault:
            return f"{fault}; --do accept needs that run: say where it is (--runs-dir), or leave accept out"
        return ""

    def refuse_unaccepted(self) -> None:
        """UsageFault where `unaccepted` has words."""
        if why := self.unaccepted():
            raise UsageFault(f"{why}; nothing was changed")

    def _looks(self) -> list[Incident]:
        looks, found = 0, dict[str, Incident]()
        while True:
            began = time.monotonic()
            try:
                found |= {one.node: one for one in self.look()}
            except ToolkitError as fault:
                if self.asked.once:
                    raise
                self._tell("head", str(fault))
            looks += 1
            if self.asked.once and looks == 2:
                self._wait_for_children()
                return list(found.values())
            time.sleep(max(0.0, self.asked.every_s - (time.monotonic() - began)))

    def look(self) -> list[Incident]:
        """All nodes once; the incidents that are new or not over."""
        answers = self._answers()
        pool = self.head.nodes()  # after the reading, which takes its time: somebody may have drained one meanwhile
        fresh = list[tuple[Node, list[Fault]]]()
        before = dict(self.seen)
        for node, answer in answers:
            if isinstance(answer, str):  # not a fault by itself: Slurm marks a node that is away
                self._tell(node.name, f"{node.name} was not read: {answer}")
                continue
            there = pool.get(checks.short(node.name))
            faults, self.seen[node.name] = judged(answer, self.seen.get(node.name), _gpus(there))
            if faults:
                fresh.append((node, faults))
        found = []
        for node, faults in fresh:
            if incident := self._begun(node, faults, pool):
                found.append(incident)
            if self._open(node, pool):
                self.seen[node.name] = _again(self.seen[node.name], before.get(node.name))
        self.kept.remember(self.seen)
        found += [one for one in self._left(pool) if one.node not in {begun.node for begun in found}]
        self._mend()
        return found

    def _answers(self) -> list[tuple[Node, GpuHealthFacts | str]]:
        """What each node reports. One that did not answer the last time is read on its own: it is in the look in which
        its answer comes, and holds up nobody."""
        for node in self.nodes:
            if node.name not in self._reading:
                workers = self._silent_workers if node.name in self._silent else self._workers
                self._reading[node.name] = workers.submit(self.read, node)
        waited = [one for name, one in self._reading.items() if self.asked.once or name not in self._silent]
        wait(waited, timeout=READ_S * (math.ceil(len(waited) / AT_ONCE) + 1))
        found = [(node, self._reading.pop(node.name)) for node in self.nodes if self._reading[node.name].done()]
        answers = [(node, reading.result()) for node, reading in found]
        for node, answer in answers:
            (self._silent.add if isinstance(answer, str) else self._silent.discard)(node.name)
        return answers

    def _last(self, name: str) -> Incident | None:
        """The last incident of a node; one that cannot be read is set aside, and holds up nobody."""
        try:
            return self.kept.read(name)
        except UsageFault as fault:
            self._tell(f"{name}'s file", f"{fault}; it is {self.kept.set_aside(name).name} now")
            return None

    def _left(self, pool: Mapping[str, PoolNode]) -> list[Incident]:
        """Of earlier commands: incidents that are not over, and drains that are on no record here, as after the loss of
        this machine. Each in words, so that no server is drained without them."""
        found = []
        for node in self.nodes:
            there, last = pool.get(checks.short(node.name)), self._last(node.name)
            ours = there is not None and not there.serves and drained_by_incident(there.reason)
            if last is not None and last.open:
                how = "goes on" if self.asked.steps else "would go on (dry run)"
                words = f"{node.name}: {reason_of(last.faults)}; its incident of {last.began} {how} in {last.step}"
            elif last is not None and last.step == "waits" and ours:
                words = f"{node.name} stays drained: {last.why}"
            elif last is None and ours and there is not None:
                words = (
                    f"{node.name} is drained ({there.reason}), and nothing of it is on record here; look at it and "
                    f"resume it by hand: scontrol update nodename={there.name} state=resume"
                )
            else:
                continue
            found += [last] if last is not None else []
            if node.name not in self.children:
                self._tell(f"{node.name}'s incident", words)
        return found

    def _open(self, node: Node, pool: Mapping[str, PoolNode]) -> bool:
        """Whether a node with a fault still takes work: by a dry run, or because no more may be taken out."""
        there = pool.get(checks.short(node.name))
        return there is not None and there.serves

    def _begun(self, node: Node, faults: list[Fault], pool: dict[str, PoolNode]) -> Incident | None:
        """A new incident, drained where that is allowed; None for one that is known or not to be begun."""
        name, short = node.name, checks.short(node.name)
        last = self._last(name)
        words, there = reason_of(faults), pool.get(short)
        resumed = last is not None and last.step == "waits" and there is not None and there.serves  # by a person
        if last is not None and last.step != "done" and not resumed:
            return last
        if there is None:
            self._tell(name, f"{name}: {words}; Slurm does not know it, so nothing is drained")
            return None
        again = last is not None and last.step == "done" and since(last.ended or last.began) < AGAIN_S
        incident = Incident(node=name, began=now(), faults=tuple(faults), again=again)
        plan = f"{name}: {words}; cure: {cure_of(faults)}"
        if "drain" not in self.asked.steps:
            self._tell(name, f"{plan}; would be drained (dry run: nothing is done without --do)")
            return incident
        if not can_be_ours(there):
            self._tell(name, f"{plan}; it takes no work already ({there.reason or there.state}) and is left alone")
            return None
        with self.kept.draining():  # what others have done since the look began counts too
            pool |= self.head.nodes()
            there = pool[short]
            if not can_be_ours(there):  # a person was quicker
                return None
            if there.serves and allowed(pool, self.asked.most_percent) < 1:
                self._tell(name, f"{plan}; {beyond(pool)}")
                return None
            self.kept.write(incident)
            self.head.drain(short, IncidentDrain(words))
            incident = self.kept.write(incident.model_copy(update={"drained": True}))
        pool |= self.head.nodes()
        self.say(f"{plan}; drained" + ("" if there.serves else f" by Slurm already ({there.reason})"))
        return incident

    def _mend(self) -> None:
        """A process for each incident that is open, so that a slow one holds nobody up."""
        for name, child in list(self.children.items()):
            if child.poll() is not None:
                del self.children[name]
        left = [node.name for node in self.nodes if self.asked.steps and node.name not in self.children]
        opened = [name for name in left if (last := self._last(name)) is not None and last.open]
        if opened and (why := self.unaccepted()):  # gone since the begin
            self._tell("accepted", f"{why}; {', '.join(opened)} goes on when it is there")
            return
        for name in opened:
            self.children[name] = subprocess.Popen(self._words(name), stdin=subprocess.DEVNULL)

    def _words(self, name: str) -> list[str]:
        asked = self.asked
        words = [*python_words("toolkit"), "incidents", "-i", str(asked.inventory), "--node", name]
        words += [
            "--do",
            ",".join(asked.steps),
            "--most",
            repr(asked.most_percent),
            "--runs-dir",
            str(asked.runs_dir),
        ]
        words += ["--accepted", asked.accepted] if asked.accepted else []
        return words + (["--grace", str(asked.grace_s)] if asked.grace_s is not None else [])

    def _end_children(self) -> None:
        """Those of a watch that was stopped: a terminal's Ctrl-C has reached them already. They go on next time."""
        for child in self.children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(ENDING_S)
            child.terminate()
            child.wait()

    def _wait_for_children(self) -> None:
        for child in self.children.values():
            child.wait()

    def _tell(self, name: str, words: str) -> None:
        """What is the same as before is printed once."""
        if self._told.get(name) != words:
            self._told[name] = words
            self.say(words)


def _again(new: Seen, old: Seen | None) -> Seen:
    """What to remember where nothing was done: the lines of the log count at the next look again."""
    return new if old is None else new.model_copy(update={"boot": old.boot, "newest_us": old.newest_us})


def _gpus(there: PoolNode | None) -> int:
    """GPUs that NVML has to show; of MIG instances nobody knows of how many GPUs they are."""
    if there is None or any("g." in name for name, _ in there.gpu_types):
        return 0
    return there.gpus
