"""Does every processor of this node compute the same, bit by bit? A faulty one gives wrong results without a word.

All processors work at the same time, each pinned, so that the node is as hot as it becomes. A turn is a fixed piece of
work whose result is exact wherever it is done: squares of long integers modulo a prime, products of floats that are
whole numbers, memory that is turned round and summed up by CRC-32, all of it by SHA-256. Its digest is therefore the
same on every processor of any make. Whoever reads the report does a turn, too, and holds every digest against it.

`stdout`: turns and digests of each processor, as JSON. `facts`: how many processors and turns.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import time
import zlib
from dataclasses import dataclass
from multiprocessing.connection import Connection
from operator import mul
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.supervise import die_with_parent
from validation.probes.tool import Ran, document

PRIME = 2**4423 - 1  # a Mersenne prime: its squares use the whole width of the multipliers
SQUARES = 24
FLOATS = 4096  # products below 2**20, so that sums are below 2**53 and exact
BLOCK_BYTES = 1 << 20


@dataclass
class Asked:
    """What is asked of this probe."""

    seconds: float  # how long every processor works, at least


def turn() -> str:
    """The digest of one turn: the same wherever it is computed right."""
    total = hashlib.sha256(b"elastic-ai exact compute")
    number = int.from_bytes(total.digest() * 17, "big")
    for _ in range(SQUARES):
        number = number * number % PRIME + 1
    total.update(number.to_bytes(600, "big"))
    left = [float(7919 * i % 1021) for i in range(FLOATS)]
    right = [float(6007 * i % 1019) for i in range(FLOATS)]
    total.update(sum(map(mul, left, right)).hex().encode())
    block = (total.digest() * (BLOCK_BYTES // total.digest_size))[::-1]
    total.update(zlib.crc32(block).to_bytes(4, "big") + block)
    return total.hexdigest()


def _work(cpu: int, seconds: float, line: Connection) -> None:
    """One process: says that it is ready, and when it is told, takes turns."""
    die_with_parent()
    os.sched_setaffinity(0, {cpu})
    line.send(True)
    line.recv()
    digests: dict[str, int] = {}
    until = time.monotonic() + seconds
    while not digests or time.monotonic() < until:
        digest = turn()
        digests[digest] = digests.get(digest, 0) + 1
    line.send({"cpu": cpu, "turns": sum(digests.values()), "digests": digests})


def together(cpus: list[int], seconds: float) -> list[dict[str, Any]]:
    """What the process of each processor reports; RuntimeError where one does not come to its end."""
    context = multiprocessing.get_context("fork")
    lines, processes = [], []
    for cpu in cpus:
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(cpu, seconds, there))
        process.start()
        there.close()
        lines.append(here)
        processes.append(process)
    try:
        for line in lines:
            line.recv()
        for line in lines:
            line.send(True)
        return [line.recv() for line in lines]
    except EOFError:
        raise RuntimeError("a process ended before it had reported") from None
    finally:
        for process in processes:
            process.kill()
            process.join()


def probe(args: Asked) -> ProbeDoc:
    """The turns of all processors, and the digests that came out."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        cpus = sorted(os.sched_getaffinity(0))
        ran = Ran(["exact-compute"], 0, "", "")
        try:
            found = together(cpus, args.seconds)
        except RuntimeError as fault:
            return ran, {"cpus": len(cpus)}, str(fault)
        report = {"cpus": len(cpus), "seconds": args.seconds, "processors": found}
        facts = {"cpus": len(cpus), "turns": sum(one["turns"] for one in found)}
        return ran._replace(stdout=json.dumps(report)), facts, None

    return document("exact-compute", "probes", measure, lambda _: platform.python_version())
