"""Jobs of users that go on in a lab while its power is cut: each is counted, and none may be lost without a word.

A job writes on its server when it begins and when it is over. Who is neither over nor in the queue is lost: with its
machine, where that was the victim; with a restoration, which brings back the state of an older day; or for nothing.
"""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass, field

from toolkit.lab import lab as labs

SERVERS = ("gpu1", "gpu2")
NOTES = "/var/tmp/power-jobs"
AT_ONCE, EVERY_S = 4, 6.0
WRITTEN_S = 15.0
"""Slurm's controller writes down what it was told some seconds later; a cut of the head before that forgets it."""


@dataclass
class Job:
    """One. `cuts`: victim and work of each cut in its time; `began_on`: servers, in their order."""

    number: int
    given: float
    cuts: list[tuple[str, str, float]] = field(default_factory=list)
    began_on: list[str] = field(default_factory=list)

    def excuse(self) -> str:
        """Why it may be lost; "" where nothing explains that."""
        if any(victim in self.began_on for victim, _, _ in self.cuts):
            return "with its machine"
        if any(victim == "head" and 0 <= at - self.given < WRITTEN_S for victim, _, at in self.cuts):
            return "before the controller wrote it down"
        return ""


class Jobs:
    """All of a lab's, given by a thread of their own."""

    def __init__(self, spec: labs.LabSpec) -> None:
        """Of this lab."""
        self.spec, self.open, self.number = spec, dict[int, Job](), 0
        self.counts = {"over": 0, "with a restoration": 0, "with its machine": 0}
        self.counts |= {"before the controller wrote it down": 0, "lost": 0}
        self._lock, self._end = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._gives, daemon=True)

    def __enter__(self) -> Jobs:
        """Begin to give them."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """No more of them."""
        self._end.set()
        self._thread.join()

    def _on(self, node: str, script: str) -> tuple[int, str]:
        words = [*labs.ssh_words(self.spec, self.spec.node(node)), script]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=40)
        except subprocess.TimeoutExpired:
            return 124, ""
        return done.returncode, done.stdout

    def _gives(self) -> None:
        while not self._end.wait(EVERY_S):
            code, queue = self._on("head", "squeue --noheader --format=%j")
            if code == 0 and sum(name.startswith("cut-") for name in queue.split()) < AT_ONCE:
                self._give()

    def _give(self) -> None:
        self.number += 1
        number, lasts_s = self.number, 10 + self.number * 7 % 30
        job = f"echo {number} begun >> {NOTES}; sleep {lasts_s}; echo {number} over >> {NOTES}"
        given = time.monotonic()
        code, _ = self._on("head", f"sbatch -n1 --mem=16 -t 5 -J cut-{number} -o /dev/null -D / --wrap '{job}'")
        if code == 0:  # of another one nobody knows whether it is in the queue
            with self._lock:
                self.open[number] = Job(number, given)

    def cut(self, victim: str, work: str) -> None:
        """Power was cut now."""
        with self._lock:
            for job in self.open.values():
                job.cuts.append((victim, work, time.monotonic()))

    def lost(self, restored: bool) -> list[str]:
        """Count those that have ended since, and name those that are lost for nothing. restored: a backup was brought
        back meanwhile, which knows none that began after it."""
        with self._lock:
            asked = dict(self.open)
        code, queue = self._on("head", "squeue --noheader --format=%j")
        notes = {node: self._on(node, f"cat {NOTES} 2>/dev/null; true") for node in SERVERS}
        if code or any(said[0] for said in notes.values()):
            return ["jobs: head or servers do not answer"]
        rows = [(node, *line.split()) for node, (_, said) in notes.items() for line in said.splitlines()]
        over = {int(number) for _, number, what in rows if what == "over"}
        waits, found = {name for name in queue.split() if name.startswith("cut-")}, list[str]()
        for number, job in asked.items():
            job.began_on = [node for node, one, what in rows if one == str(number) and what == "begun"]
            if number in over:
                found_as = "over"
            elif f"cut-{number}" in waits:
                continue
            else:
                found_as = "with a restoration" if restored else job.excuse() or "lost"
            if found_as == "lost":
                found.append(f"job {number} is lost: on {job.began_on or 'no server'}, cuts {job.cuts}")
            self.counts[found_as] += 1
            with self._lock:
                del self.open[number]
        return found
