"""On a client of the pool, as root: what benchmarks/leases.py has measured there. Prints one JSON document.

    leases_client.py lines RUNS WAITING LIMIT_S      toolkit run to the first line of its program
    leases_client.py waits CLIENTS WINDOW_S          what waiting clients ask of the controller

The users alice and bob are there, and nothing else is in the queue. Python 3.9, standard library.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

#: Where role remoting_client puts the toolkit.
LIBRARY = "/usr/lib/elastic-ai/lease"
#: Servers of the lab: the queue is for the first, and the second has room.
FULL, FREE = "gpu1", "gpu2"
GPUS = 4
#: Where its programs run: here by the engine, or on the server.
WAYS = ("client", "server")
#: From when a client knows its place until its questions are those of a long wait.
SETTLE_S = 20


def as_user(user: str, *words: str, **how: Any) -> subprocess.Popen[str]:
    """A command of a user's."""
    return subprocess.Popen(["runuser", "-u", user, "--", *words], text=True, cwd="/", **how)


def hold(count: int, *where: str) -> int:
    """alice has so many GPUs; the lease's number."""
    asked = as_user(
        "alice", "toolkit", "lease", "request", "-n", str(count), *where, "--time", "0.25h", "--json",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    said = asked.communicate(timeout=120)[0]
    if asked.returncode != 0:
        raise SystemExit(f"{count} GPUs of {' '.join(where) or 'the pool'} cannot be held")
    return int(json.loads(said)["lease"])


def release(lease: int) -> None:
    """Give it back."""
    as_user("alice", "toolkit", "lease", "release", str(lease), stdout=subprocess.DEVNULL).wait(60)


def line_s(wish: list[str]) -> float:
    """Seconds from `toolkit run` to the first line of its program."""
    began = time.monotonic()
    asked = as_user("alice", "toolkit", "run", "--no-kernels", *wish, "--", "echo", "here", stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE)  # fmt: skip
    assert asked.stdout is not None
    assert asked.stderr is not None
    first, took = asked.stdout.readline(), time.monotonic() - began
    words = asked.stderr.read()
    if asked.wait() != 0 or first != "here\n":
        raise SystemExit(f"toolkit run {' '.join(wish)} ended with {asked.returncode}: {words[-300:]}")
    return took


class Crowd:
    """Clients in the queue for one GPU of FULL each; their programs say one line."""

    def __init__(self, count: int) -> None:
        """Begin them, a few at a time."""
        self.waiting: set[int] = set()
        self.had: dict[int, float] = {}
        self._all: list[subprocess.Popen[str]] = []
        with ThreadPoolExecutor(4) as few:
            list(few.map(self._begin, range(count)))

    def _begin(self, number: int) -> None:
        client = as_user("bob", "toolkit", "run", "--no-kernels", "-n", "1", "-l", FULL, "--", "echo", "here",
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
        self._all.append(client)
        waits = threading.Event()
        threading.Thread(target=self._hear, args=(number, client, waits), daemon=True).start()
        threading.Thread(target=self._turn, args=(number, client), daemon=True).start()
        waits.wait(30)

    def _hear(self, number: int, client: subprocess.Popen[str], waits: threading.Event) -> None:
        assert client.stderr is not None
        for words in client.stderr:
            if "waits for" in words:
                self.waiting.add(number)
                waits.set()

    def _turn(self, number: int, client: subprocess.Popen[str]) -> None:
        assert client.stdout is not None
        if client.stdout.readline() == "here\n":
            self.had[number] = time.monotonic()

    def drain(self, limit_s: float) -> None:
        """Wait until each had its turn, for so long."""
        end = time.monotonic() + limit_s
        while len(self.had) < len(self._all) and time.monotonic() < end:
            time.sleep(0.2)

    def end(self) -> None:
        """Nobody waits any more."""
        for client in self._all:
            if client.poll() is None:
                os.killpg(client.pid, signal.SIGTERM)
        for client in self._all:
            client.wait(60)


def lines(runs: int, waiting: int, limit_s: float) -> dict[str, Any]:
    """Idle; then with clients in the queue for the other server; then how soon these have their turn."""
    began = time.monotonic()
    wish = ["-n", "1", "-l", FREE, "--time", "0.05h"]

    def each_way() -> dict[str, list[float]]:
        return {where: [line_s([*wish, "--where", where]) for _ in range(runs)] for where in WAYS}

    found: dict[str, Any] = {"idle_s": each_way()}
    lease = hold(GPUS, "-l", FULL)
    crowd = Crowd(waiting)
    try:
        found["waiting"] = len(crowd.waiting)
        found["waiting_s"] = each_way()
        released = time.monotonic()
        release(lease)
        crowd.drain(limit_s - (released - began))
        found["turns"] = len(crowd.had)
        found["turns_s"] = max(crowd.had.values(), default=released) - released
    finally:
        crowd.end()
    return found


def asked_by(user: str) -> int:
    """Questions of a user that the controller counted."""
    said = subprocess.run(["sdiag"], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
    counts = re.findall(rf"^\s*{user}\s*\(\s*\d+\)\s+count:(\d+)", said, re.MULTILINE)
    return int(counts[0]) if counts else 0


def pending(user: str) -> int:
    """Jobs of a user in the queue."""
    words = ["squeue", "--noheader", "--states=PENDING", f"--user={user}", "--format=%A"]
    return len(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout.split())


def waits(clients: int, window_s: float) -> dict[str, Any]:
    """All GPUs are alice's; bob's clients wait, and the controller counts what he asks."""
    lease = hold(2 * GPUS)
    with Path(__file__).open() as source:
        crowd = as_user("bob", "env", f"PYTHONPATH={LIBRARY}", "python3", "-", "crowd", str(clients),
                        stdin=source, stdout=subprocess.PIPE, start_new_session=True)  # fmt: skip
    try:
        assert crowd.stdout is not None
        words = crowd.stdout.readline().split()
        if words[:1] != ["waiting"]:
            raise SystemExit(f"{clients} clients did not come to wait")
        time.sleep(SETTLE_S)
        there, before, began = pending("bob"), asked_by("bob"), time.monotonic()
        time.sleep(window_s)
        asked, took_s = asked_by("bob") - before, time.monotonic() - began
        return {"clients": there, "told": int(words[1]), "still": pending("bob"), "asked": asked, "window_s": took_s}
    finally:
        os.killpg(crowd.pid, signal.SIGKILL)  # runuser's child too, which would hold the ssh connection open
        crowd.wait()
        subprocess.run(["scancel", "--user=bob"], check=False, timeout=60)
        release(lease)


def crowd(clients: int) -> None:
    """As the user who waits: the client's own code asks for a lease and waits for it, in so many threads."""
    from toolkit.lease.client import ask, waiting
    from toolkit.lease.lease_request import LeaseWish
    from toolkit.lease.machine.host import this_host

    host = this_host()
    submission = ask.against_pool(host, LeaseWish(), "run", print)
    told: set[int] = set()

    def one(lease: int) -> None:
        waiting.wait(host, lease, submission.request.text, lambda _words: told.add(lease))

    with ThreadPoolExecutor(4) as few:
        for lease in few.map(lambda _: ask.submit(host, submission), range(clients)):
            threading.Thread(target=one, args=(lease,), daemon=True).start()
    end = time.monotonic() + 120
    while len(told) < clients and time.monotonic() < end:
        time.sleep(0.5)
    print("waiting", len(told), flush=True)
    time.sleep(3600)  # until whoever measures has seen enough


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    if what == "crowd":
        crowd(int(numbers[0]))
    elif what == "lines":
        print(json.dumps(lines(*map(int, numbers))))
    else:
        print(json.dumps(waits(*map(int, numbers))))
