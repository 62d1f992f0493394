"""Cuts the network under two programs on a leased GPU, in a network namespace of its own (`unshare -n`).

Prints a line of JSON: after how many seconds each was told, and what; when both sessions were gone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.support.torch_engine import server, start

BEGIN = """
import time, torch
x = torch.ones(3, device="cuda")
x.sum().item()
print("ready", flush=True)
"""
CAUGHT = "except BaseException as fault: print(time.monotonic(), fault, flush=True)\n"
ASKS = BEGIN + "input()\ntry: x.sum().item()\n" + CAUGHT
WAITS = BEGIN + "try: x[:1].expand(1 << 40).sum().item()\n" + CAUGHT
LIMIT_S = 60


def main(folder: Path) -> None:
    """In the namespace, whose loopback is the network."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with server(folder) as one:
        programs = [start(program, "remote", one) for program in (ASKS, WAITS)]
        for program in programs:
            assert program.stdout
            assert program.stdout.readline() == "ready\n"
        time.sleep(1)
        subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
        cut = time.monotonic()
        assert programs[0].stdin
        programs[0].stdin.write("\n")
        programs[0].stdin.flush()
        told = []
        for program in programs:
            assert program.stdout
            at, _, words = program.stdout.readline().partition(" ")
            told.append({"after_s": float(at) - cut, "words": words})
        while one.children() and time.monotonic() < cut + LIMIT_S:
            time.sleep(0.1)
        print(json.dumps({"told": told, "gone_s": time.monotonic() - cut, "port": one.port}))
        for program in programs:
            program.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
