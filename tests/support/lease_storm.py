"""On a client of the pool: many programs at once, with random deaths. Prints JSON: what each did and how it ended.

`lease_storm.py LEASES CLIENTS SEED` runs as root and gives the programs to the users alice and bob.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

WISHES = (
    ["-n", "1"], ["-p", "1/7"], ["-p", "1/2"], ["-n", "2", "-p", "1/4"], ["-n", "3", "-p", "1/7"], ["-p", "5/20"],
    ["-n", "2"], ["-m", "100"],
)  # fmt: skip
#: What happens to it while it runs; `none` is half of all.
DEATHS = (
    "none",
    "none",
    "none",
    "none",
    "kill toolkit",
    "kill program",
    "scancel",
    "terminate",
    "interrupt while waiting",
)
COPY = ["elastic-ai-copybench", "--bytes", "4M", "--latency-count", "20"]
LIMIT_S = 300


@dataclass
class Outcome:
    """One lease."""

    user: str
    wish: str
    death: str
    code: int
    lease: int
    seconds: float
    said: str


def children(pid: int) -> list[int]:
    """Processes below a process."""
    try:
        found = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return found + [below for child in found for below in children(child)]


def toolkit_pid(pid: int) -> int | None:
    """The `toolkit run` under runuser."""
    for child in children(pid):
        try:
            words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        except OSError:
            continue
        if any(word.endswith("/toolkit") for word in words):
            return child
    return None


def act(death: str, runuser: int, lease: int, dice: random.Random) -> None:
    """Let it happen."""
    time.sleep(dice.random() * 2)
    toolkit = toolkit_pid(runuser)
    try:
        if death == "scancel":
            subprocess.run(["scancel", str(lease)], check=False)
        elif death == "kill toolkit" and toolkit:
            os.kill(toolkit, signal.SIGKILL)
        elif death in ("terminate", "interrupt while waiting") and toolkit:
            os.kill(toolkit, signal.SIGTERM if death == "terminate" else signal.SIGINT)
        elif death == "kill program" and toolkit:
            for child in children(toolkit):
                os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        return


def one(number: int, seed: int) -> Outcome:
    """Ask, use, and lose or give back."""
    dice = random.Random(seed * 1000 + number)
    user, wish, death = dice.choice(("alice", "bob")), dice.choice(WISHES), dice.choice(DEATHS)
    program = COPY if death == "none" else ["sleep", "20"]
    began = time.monotonic()
    process = subprocess.Popen(
        ["runuser", "-u", user, "--", "toolkit", "run", *wish, "--", *program],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    said: list[str] = []
    acted = death == "none"
    if death == "interrupt while waiting":
        threading.Thread(target=act, args=(death, process.pid, 0, dice), daemon=True).start()
        acted = True
    timer = threading.Timer(LIMIT_S, process.kill)
    timer.start()
    lease = 0
    for line in process.stderr:
        said.append(line.strip())
        match = re.match(r"lease (\d+): .*gpu\d:", line)
        lease = int(match[1]) if match else lease
        if match and not acted:
            acted = True
            threading.Thread(target=act, args=(death, process.pid, lease, dice), daemon=True).start()
    code = process.wait()
    timer.cancel()
    words = " | ".join(said[-2:])
    return Outcome(user, " ".join(wish), death, code, lease, round(time.monotonic() - began, 1), words[:300])


def main() -> None:
    """Run them all."""
    leases, clients, seed = (int(word) for word in sys.argv[1:4])
    with ThreadPoolExecutor(clients) as pool:
        outcomes = list(pool.map(lambda number: one(number, seed), range(leases)))
    print(json.dumps([asdict(outcome) for outcome in outcomes]))


if __name__ == "__main__":
    main()
