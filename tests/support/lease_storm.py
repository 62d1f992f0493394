"""On a client of the pool: many programs at once, with random deaths. Prints JSON: what each did and how it ended.

`lease_storm.py LEASES CLIENTS SEED LIMIT_S URGENT` runs as root and gives the programs to the users alice and bob.
After LIMIT_S seconds no more are begun. URGENT: one of so many of alice's is asked for as class `urgent`; 0: none.
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
    ["--where", "server", "-n", "1"], ["--where", "server", "-n", "2"], ["--where", "server", "-n", "2", "--apart"],
    ["--where", "server", "-n", "5"],
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
#: The same on the server itself: what it sees of its GPUs is what the lease says, on each of its servers.
LOOK = [
    "python3",
    "-c",
    "import ctypes as c, os; d, n = c.CDLL('libcuda.so.1'), c.c_int(); "
    "assert (d.cuInit(0), d.cuDeviceGetCount(c.byref(n))) == (0, 0); "
    "assert n.value == len(os.environ['CUDA_VISIBLE_DEVICES'].split(','))",
]
LIMIT_S = 300
#: What `toolkit run` says once its lease runs: 1/2 of gpu1:0, gpu2:0-3.
_GIVEN = re.compile(r"lease (\d+): ((?:(?:\S+ of )?gpu\d+:[\d,-]+(?:, )?)+)(?: \(.*)?$")


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
    urgent: bool
    #: What the client was told that it has, and between which moments (seconds since the epoch) it certainly had it.
    where: str
    from_s: float
    until_s: float
    #: Of each device, where the client was told how much its wish comes to.
    shards: int


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


def one(number: int, seed: int, urgents: int, last: float) -> Outcome | None:
    """Ask, use, and lose or give back; None after the last moment for it."""
    if time.monotonic() > last:
        return None
    dice = random.Random(seed * 1000 + number)
    user, wish, death = dice.choice(("alice", "bob")), dice.choice(WISHES), dice.choice(DEATHS)
    urgent = bool(urgents) and user == "alice" and dice.randrange(urgents) == 0
    account = ["env", "SBATCH_ACCOUNT=urgent"] if urgent else []
    does = LOOK if "server" in wish else COPY
    program = does if death == "none" else ["sleep", "20"]
    began = time.monotonic()
    process = subprocess.Popen(
        ["runuser", "-u", user, "--", *account, "toolkit", "run", "--no-kernels", *wish, "--", *program],
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
    lease, where, began_s, ended_s, shards = 0, "", 0.0, 0.0, 0
    for line in process.stderr:
        said.append(line.strip())
        match = _GIVEN.match(line.strip())
        if match:
            lease, where, began_s = int(match[1]), match[2], time.time()
        told = re.search(r"you get (\d+) of \d+ shards", line)
        shards = int(told[1]) if told else shards
        if re.match(r"lease \d+ has ended", line):
            ended_s = time.time()
        if match and not acted:
            acted = True
            threading.Thread(target=act, args=(death, process.pid, lease, dice), daemon=True).start()
    code = process.wait()
    timer.cancel()
    ends = [line for line in said if re.match(r"lease \d+ (has ended|ends)", line)]
    words = " | ".join(dict.fromkeys([*ends, *said[-2:]]))
    took_s = round(time.monotonic() - began, 1)
    ended_s = ended_s or time.time()
    return Outcome(
        user, " ".join(wish), death, code, lease, took_s, words[:300], urgent, where, began_s, ended_s, shards
    )


def main() -> None:
    """Run them all."""
    leases, clients, seed, limit_s, urgents = (int(word) for word in sys.argv[1:6])
    last = time.monotonic() + limit_s
    with ThreadPoolExecutor(clients) as pool:
        outcomes = list(pool.map(lambda number: one(number, seed, urgents, last), range(leases)))
    print(json.dumps([asdict(outcome) for outcome in outcomes if outcome is not None]))


if __name__ == "__main__":
    main()
