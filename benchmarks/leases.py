"""Leases on the lab that is up and provisioned: how soon a program runs, what waiting costs, and a storm. Needs root.

    .venv/bin/python benchmarks/leases.py first-line       # toolkit run to the first line, idle and with 50 waiting
    .venv/bin/python benchmarks/leases.py waiting          # questions to Slurm's controller of 300 waiting clients
    .venv/bin/python benchmarks/leases.py storm            # 200 leases, kills, preemptions, restarts of slurmctld

Each takes less than six minutes, needs a lab of four nodes without jobs (`toolkit lab up && toolkit deploy`), and
leaves it as it was: the users alice and bob come and go. Exit code 1 where the storm has a fault.

GPUs of the lab are emulated. `first-line` runs on gpu2 while alice has all of gpu1 and bob's clients wait for gpu1;
then alice gives gpu1 back, and it is told how soon all of bob's had their turn. In `waiting` the clients' own code
waits, in threads of one process, and the controller itself counts (`sdiag`). `storm` applies a policy with preemption
to the pool (playbooks/pool.yml) and takes it away again; `--calm` does without policy and restarts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support import lease_storms
from tests.support.lease_lab import left, on_each, put
from toolkit.errors import LabError
from toolkit.lab import lab as labs
from toolkit.lab.spec import DEFAULT_NAME
from toolkit.lab.standing import standing_inventory

ROOT = Path(__file__).resolve().parents[1]
CLIENT = Path(__file__).with_name("leases_client.py")
#: Of each server.
GPUS = 4
NODES = ("head", "client1", "gpu1", "gpu2")
#: One command on a node, and one run of a playbook.
COMMAND_S = 540
#: Adds the users who are not there, and says whom it added.
ADD = """
for who in alice:2001 bob:2002; do
    id ${who%:*} >&2 || { useradd -m -u ${who#*:} ${who%:*} && echo ${who%:*}; } || exit
done
"""
QUEUE = "squeue --noheader || echo the controller does not answer"


@dataclass(frozen=True)
class StandingLab:
    """The lab that is up."""

    name: str
    inventory: Path

    def ssh(self, node: str, *command: str) -> str:
        """What the command said on the node; ends the benchmark when it fails."""
        spec = labs.load(self.name)
        words = [*labs.ssh_words(spec, spec.node(node)), *command]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=COMMAND_S)
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip())[-600:]
            raise SystemExit(f"{node}: {command[0][:80]}: exit status {done.returncode}: {said}")
        return done.stdout

    def policy(self, *words: str) -> float:
        """playbooks/pool.yml; its seconds."""
        began = time.monotonic()
        command = [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "playbooks/pool.yml",
            "-i",
            str(self.inventory),
            *words,
        ]
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        if done.returncode:
            raise SystemExit(f"playbooks/pool.yml: exit status {done.returncode}\n{done.stdout[-3000:]}")
        return time.monotonic() - began


@contextmanager
def users(lab: StandingLab) -> Iterator[None]:
    """alice and bob on all nodes, in a pool without jobs; nobody and nothing of theirs afterwards."""
    queue = lab.ssh("head", QUEUE)
    if queue.strip():
        raise SystemExit(f"the lab's pool has jobs; end them first (scancel):\n{queue}")
    added = {node: said.split() for node, said in on_each(lab, NODES, ADD).items()}
    try:
        yield
    finally:
        lab.ssh("head", "scancel --user=alice; scancel --user=bob; true")
        lease_storms.settles(lambda: lab.ssh("head", QUEUE).strip(), "", 90)
        stays = lease_storms.settles(lambda: left(lab), {}, 60)
        print(f"left on the servers: {stays or 'nothing'}")
        for node, names in added.items():
            gone = [f"userdel -rf {name} 2>&1" for name in names]
            lab.ssh(node, "; ".join([*gone, "rm -f /root/lease_*.py /root/leases_client.py /root/stop"]))


def load_words() -> str:
    """What else the machine did, for who compares figures."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def spread(seconds: list[float]) -> str:
    """Median, smallest and largest."""
    return f"median {statistics.median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f}, {len(seconds)} runs)"


def on_client(lab: StandingLab, *words: str) -> Any:
    """What leases_client.py measured on client1."""
    return json.loads(lab.ssh("client1", f"python3 {put(lab, 'client1', CLIENT)} {' '.join(words)}"))


def first_line(lab: StandingLab, options: argparse.Namespace) -> int:
    """toolkit run to the first line of its program."""
    with users(lab):
        found = on_client(lab, "lines", str(options.runs), str(options.waiting), "240")
    for where, seconds in found["idle_s"].items():
        print(f"toolkit run to its program's first line, on the {where}, idle: {spread(seconds)}")
    for where, seconds in found["waiting_s"].items():
        print(f"the same, on the {where}, while {found['waiting']} clients wait for another server: {spread(seconds)}")
    print(
        f"then that server's {GPUS} GPUs are given back: {found['turns']} of {found['waiting']} programs had their "
        f"turn within {found['turns_s']:.0f} s"
    )
    return 0 if found["turns"] == found["waiting"] == options.waiting else 1


def waiting(lab: StandingLab, options: argparse.Namespace) -> int:
    """Questions of waiting clients."""
    with users(lab):
        found = on_client(lab, "waits", str(options.clients), str(options.window_s))
    rate = found["asked"] / found["clients"] / (found["window_s"] / 60)
    print(f"{found['clients']} clients wait, {found['told']} of them knew their place before, {found['still']} wait in "
          f"the end; counted by the controller for {found['window_s']:.0f} s: {found['asked']} questions, "
          f"{rate:.2f} for each client and minute")  # fmt: skip
    return 0


def storm(lab: StandingLab, options: argparse.Namespace) -> int:
    """Leases, some of which die."""
    urgents = 0 if options.calm else 4
    with users(lab):
        if not options.calm:
            with tempfile.NamedTemporaryFile("w", suffix=".json") as policy:
                json.dump(lease_storms.PREEMPTING, policy)
                policy.flush()
                print(f"policy with preemption applied in {lab.policy('-e', f'@{policy.name}'):.0f} s", flush=True)
        began = time.monotonic()
        try:
            seen = lease_storms.run(
                lab, options.leases, options.at_a_time, options.seed, options.limit_s, urgents, not options.calm
            )
            print(f"storm of {time.monotonic() - began:.0f} s:", flush=True)
        finally:
            if not options.calm:
                print(f"policy taken away in {lab.policy():.0f} s", flush=True)
    print(lease_storms.summary(seen))
    wrong = lease_storms.faults(seen, urgents=bool(urgents))
    if len(seen.outcomes) < options.leases:
        print(f"the time was enough for {len(seen.outcomes)} of {options.leases} leases (--limit-s)")
    for words in wrong:
        print(f"FAULT: {words}")
    print("nothing leaked, nothing was given twice" if not wrong else f"{len(wrong)} faults")
    return 1 if wrong else 0


def main() -> int:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default=DEFAULT_NAME, help="the lab's name")
    parser.add_argument("-i", "--inventory", type=Path, help="its inventory, where it has another than its own")
    figures = parser.add_subparsers(required=True, metavar="FIGURE")
    one = figures.add_parser("first-line")
    one.add_argument("--runs", type=int, default=5)
    one.add_argument("--waiting", type=int, default=50)
    one.set_defaults(figure=first_line)
    one = figures.add_parser("waiting")
    one.add_argument("--clients", type=int, default=300)
    one.add_argument("--window-s", type=int, default=90)
    one.set_defaults(figure=waiting)
    one = figures.add_parser("storm")
    one.add_argument("--leases", type=int, default=200)
    one.add_argument("--at-a-time", type=int, default=20)
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--limit-s", type=int, default=170, help="after so long no more leases are asked for")
    one.add_argument("--calm", action="store_true", help="without preemptions and restarts")
    one.set_defaults(figure=storm)
    options = parser.parse_args()
    try:
        lab = StandingLab(options.name, options.inventory or standing_inventory(options.name))
    except LabError as fault:
        raise SystemExit(f"error: {fault}") from None
    began = time.monotonic()
    print(f"before: {load_words()}", flush=True)
    code: int = options.figure(lab, options)
    print(f"{time.monotonic() - began:.0f} s in all; after: {load_words()}")
    return code


if __name__ == "__main__":
    sys.exit(main())
