"""Runs the jobs of a group test (validation/analysis/group_tests.py) as commands, those of a round at the same time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.interruption import interrupted_afterwards
from toolkit.inventory import read_site
from toolkit.node_groups import known, members
from validation.analysis.group_tests import Job, Narrowed, Narrowing
from validation.base.counting import number_of

PLACES = ("{nodes}", "{count}", "{hostfile}")
"""What is put into the command's words: names with commas between them, how many, a file with one on each line."""
NODES = ("{nodes}", "{hostfile}")
LOOK_S = 0.05
END_S = 10.0
"""How long a job may take to end once it was told to."""


@dataclass(frozen=True)
class NarrowRequest:
    """The options of `toolkit narrow` as they were given. `nodes`: names with commas between them, None for those of
    the inventory's group; `alone`: the least nodes of a job.
    """

    nodes: str | None
    inventory: Path | None
    group: str
    limit_s: int
    at_once: int
    alone: int
    out: Path
    command: tuple[str, ...]

    def checked(self) -> tuple[str, ...]:
        """The nodes that the job failed on. UsageFault for options that do not go together, and for too few nodes."""
        if not any(place in word for word in self.command for place in NODES):
            raise UsageFault(f"COMMAND has neither {' nor '.join(NODES)}: each job would run on the same nodes")
        if self.nodes is not None and self.inventory is not None:
            raise UsageFault("--nodes names them; omit -i")
        names = self._of_group() if self.nodes is None else tuple(name for name in self.nodes.split(",") if name)
        if len(set(names)) != len(names):
            raise UsageFault("a node is named twice")
        if len(names) < max(2, self.alone):
            raise UsageFault(f"{number_of(len(names), 'node')}: there is nothing to narrow")
        return names

    def _of_group(self) -> tuple[str, ...]:
        if self.inventory is None:
            raise UsageFault("which nodes? --nodes NAME,... or -i INVENTORY")
        site = read_site(self.inventory)
        found = tuple(node.name for node in members(site, self.group))
        if not found:
            raise UsageFault(f"{self.inventory}: no node in group {self.group}; {known(site, self.group)}")
        return found

    def narrow(self, say: Callable[[str], None]) -> Narrowed:
        """All jobs of the group test. What is running ends with this, however that comes."""
        names = self.checked()
        return Runner(self.command, self.out, self.at_once, self.limit_s, say).narrow(names, self.alone)


@dataclass(frozen=True)
class Ended:
    """What came of a job: exit code, None where its time was over; `log`: what it said."""

    nodes: Job
    code: int | None
    seconds: float
    log: Path

    @property
    def words(self) -> str:
        """`failed, exit code 1, after 3 s (narrow/job-4.log)`."""
        said = (
            "worked" if self.code == 0 else "not at its end" if self.code is None else f"failed, exit code {self.code},"
        )
        return f"{said} after {self.seconds:.0f} s ({self.log})"


@dataclass
class Runner:
    """Runs `command` for groups of nodes, at most `at_once` together; one that takes longer than `limit_s` failed.

    Each job's output goes to a file of `out`. UsageFault where the command cannot be started: no node is at fault then.
    """

    command: Sequence[str]
    out: Path
    at_once: int
    limit_s: float
    say: Callable[[str], None]
    done: list[Ended] = field(default_factory=list)

    def narrow(self, nodes: Sequence[str], alone: int) -> Narrowed:
        """All rounds. What is running ends with this, however that comes."""
        self.out.mkdir(parents=True, exist_ok=True)
        narrowing = Narrowing(nodes, alone=alone)
        number = 0
        while jobs := narrowing.jobs():
            number += 1
            self.say(f"round {number}: {number_of(len(jobs), 'job')}")
            narrowing.tell(self._round(jobs))
        return narrowing.outcome()

    def _round(self, jobs: Sequence[Job]) -> Mapping[Job, bool]:
        waiting, worked = list(jobs), {}
        running: dict[Job, tuple[subprocess.Popen[bytes], float, Path]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.at_once:
                    job = waiting.pop(0)
                    log = self.out / f"job-{len(self.done) + len(running) + 1}.log"
                    with interrupted_afterwards():
                        running[job] = (self._start(job, log), time.monotonic(), log)
                for job, (child, since, log) in list(running.items()):
                    late = time.monotonic() - since > self.limit_s
                    code = child.poll()
                    if code is None and not late:
                        continue
                    if code is None:
                        end(child)
                    del running[job]
                    self.done.append(Ended(job, code, time.monotonic() - since, log))
                    worked[job] = code == 0
                    self.say(f"  {','.join(job)}: {self.done[-1].words}")
                time.sleep(LOOK_S)
        finally:
            with interrupted_afterwards():
                end(*(child for child, _, _ in running.values()))
        return worked

    def _start(self, job: Job, log: Path) -> subprocess.Popen[bytes]:
        hosts = log.with_suffix(".hosts")
        hosts.write_text("".join(f"{name}\n" for name in job))
        values = dict(zip(PLACES, (",".join(job), str(len(job)), str(hosts)), strict=True))
        words = [self._filled(word, values) for word in self.command]
        with log.open("wb") as said:
            try:
                return subprocess.Popen(
                    words, stdout=said, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True
                )
            except OSError as error:
                raise UsageFault(f"{words[0]}: cannot be started: {error.strerror}") from None

    @staticmethod
    def _filled(word: str, values: Mapping[str, str]) -> str:
        for place, value in values.items():
            word = word.replace(place, value)
        return word


def end(*children: subprocess.Popen[bytes]) -> None:
    """Jobs and what they started on this machine: TERM, after END_S KILL, and END_S more for their end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in children:
            _signal(child, number)
        until = time.monotonic() + END_S
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, until - time.monotonic()))
    # What a job had started was ended with it, and is somebody else's to be waited for.
    while any(_signal(child, 0) for child in children) and time.monotonic() < until:
        time.sleep(LOOK_S)


def _signal(child: subprocess.Popen[bytes], number: int) -> bool:
    """To all of a job's group; False where nothing of it is left."""
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return False
    return True
