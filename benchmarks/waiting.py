"""What clients that wait for a lease ask of Slurm's controller: questions for each client and minute, with 300 waiting.

    .venv/bin/python benchmarks/waiting.py
    .venv/bin/python benchmarks/waiting.py --clients 300 --turnover-s 30

The clients' own code waits, in simulated time. Slurm's commands are counted where it runs them, and answered from an
invented queue: the clients come within a minute, and a GPU is free for the next of them every `turnover` seconds. Each
command is two questions to the controller (RPCs), as sdiag counts them of Slurm 22.05's squeue. What a client asks
before it waits and once it runs is not in it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.lease_host import FakeClock, FakeHost
from tests.support.lease_texts import answer, slurm_job
from toolkit.lease.client import waiting
from toolkit.lease.jobs import slurm

ARRIVE_S = 60.0
"""All clients come within this time."""
RPCS = 2
"""Of one command: jobs and partitions."""


@dataclass
class Queue:
    """The controller: client i has job i + 1; `asked` are the moments of all questions."""

    clients: int
    turnover_s: float
    clock: FakeClock
    asked: list[float]

    def begins(self, job: int) -> float:
        """When a client comes."""
        return (job - 1) * ARRIVE_S / self.clients

    def starts(self, job: int) -> float:
        """When its turn comes."""
        return ARRIVE_S + job * self.turnover_s

    def run(self, args: Sequence[str], stdin: str = "", timeout_s: float = 60) -> CompletedProcess[bytes]:
        """One command."""
        now = self.clock.now
        self.asked.append(now)
        said = ""
        if "--states=PENDING" in args:
            there = [n for n in range(1, self.clients + 1) if self.begins(n) <= now < self.starts(n)]
            said = "".join(f"{n} N/A Resources\n" for n in there)
        else:
            job = int(next(word for word in args if word.startswith("--jobs=")).removeprefix("--jobs="))
            state = "RUNNING" if now >= self.starts(job) else "PENDING"
            if "--json" in args:
                return CompletedProcess(list(args), 0, answer(slurm_job(job, state=state)), b"")
            said = f"{job} {state} {'None' if state == 'RUNNING' else 'Resources'}\n"
        return CompletedProcess(list(args), 0, said.encode(), b"")


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--turnover-s", type=float, default=30.0)
    options = parser.parse_args()
    rates, late, asked = [], [], []
    for job in range(1, options.clients + 1):
        clock = FakeClock()
        queue = Queue(options.clients, options.turnover_s, clock, [])
        clock.now = queue.begins(job)
        slurm._run = queue.run  # type: ignore[assignment]
        waiting.wait(FakeHost(slurm=slurm, clock=clock), job, "1 GPU", lambda _words: None)  # type: ignore[arg-type]
        waited_s = clock.now - queue.begins(job)
        rates.append(RPCS * len(queue.asked) / (waited_s / 60))
        late.append(clock.now - queue.starts(job))
        asked += queue.asked
    busy = [when for when in asked if when < queue.starts(1)]  # while all of them wait
    first, last = ARRIVE_S, ARRIVE_S + 300
    after = [when for when in asked if first <= when < last]
    turns = [queue.starts(job) for job in range(1, options.clients + 1)]
    waited_min = sum(min(turn, last) - first for turn in turns) / 60
    print(f"{options.clients} clients, a GPU every {options.turnover_s:g} s, simulated time")
    print(f"questions for each waiting client and minute, the five minutes after the last came: "
          f"{RPCS * len(after) / waited_min:.2f}")  # fmt: skip
    print(f"the same over each client's whole wait: median {statistics.median(rates):.2f}, worst {max(rates):.2f}")
    print(f"at the controller, most in one second: {RPCS * max(Counter(int(when) for when in busy).values())}")
    print(f"a client knows that it runs after {statistics.mean(late):.1f} s (mean), {max(late):.1f} s (worst)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
