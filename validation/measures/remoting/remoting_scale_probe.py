"""One training from one client on more and more GPUs of the pool: one, those of one server, of two, four, and all.

Each GPU has the same share of images in all of them. In turns, so that what drifts with time is in each.

`stdout`: of each job, under a line `== turn 1 of 2: servers-2 8` (how many servers, how many GPUs; `one 1` at first),
the document of elastic-ai-train. `facts`: client, servers, gpus (of each server), emulated, engine, engine_release.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

from validation.base.counting import number_of
from validation.measures.remoting.remoting_worlds_probe import options, remotely
from validation.probes import ProbeDoc, remoting, remoting_program
from validation.probes.tool import Ran, document

ONE = "one"


@dataclass
class Asked:
    """What is asked of this probe."""

    servers: list[str]  # GPU servers, in the order in which they are added
    turns: int  # how often each number of GPUs is taken
    batch: int  # images of a step on each GPU
    steps: int  # of each job
    inputs: int  # numbers of an image
    hidden: int  # width of the network
    limit_s: float  # all jobs together may take so long
    load: list[str] = field(default_factory=list)  # what PyTorch trains; empty: elastic-ai-train


def prefixes(servers: int) -> list[int]:
    """How many servers take part: 1, 2, 4, ... and all."""
    return [*(1 << at for at in range(servers.bit_length()) if 1 << at < servers), servers]


def worlds(servers: list[str], gpus: dict[str, int]) -> list[tuple[str, list[str], int]]:
    """Name, servers and number of GPUs of each, the least first."""
    found = [(ONE, servers[:1], 1)]
    for many in prefixes(len(servers)):
        found.append((f"servers-{many}", servers[:many], sum(gpus[name] for name in servers[:many])))
    return found


def train(args: Asked, gpus: dict[str, int]) -> str:
    """All jobs; Unmet with its turn where one did not train."""
    outputs: list[str] = []
    until = time.monotonic() + args.limit_s
    all_of_them = worlds(args.servers, gpus)
    for turn in range(1, args.turns + 1):
        for name, servers, count in all_of_them if turn % 2 else reversed(all_of_them):
            given = options(count, args.batch, args.steps, args.inputs, args.hidden, args.load)
            try:
                text = remotely(count, servers, given, until, args.load)
                outputs.append(f"== turn {turn} of {args.turns}: {name} {count}\n{text}\n")
            except remoting.Unmet as fault:
                raise remoting.Unmet(
                    f"turn {turn}, {number_of(count, 'GPU')} of {number_of(len(servers), 'server')}: {fault}"
                ) from None
    return "".join(outputs)


def probe(args: Asked) -> ProbeDoc:
    """Losses, and seconds of each step, of every job."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"client": os.uname().nodename, "servers": args.servers}
        facts |= remoting_program.facts(args.load)
        try:
            there = remoting.pool_of(args.servers)
            gpus = {name: sum(gpu["node"] == name for gpu in there) for name in args.servers}
            facts |= {"gpus": list(gpus.values()), "emulated": any(gpu["emulated"] for gpu in there)}
            return Ran([remoting.COMMAND, "run"], 0, train(args, gpus), ""), facts, None
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND, "run"], 0, "", ""), facts, str(fault)

    release = remoting_program.facts(args.load)["engine_release"]
    return document("remoting-scale", remoting_program.tool_of(args.load), measure, lambda _: release)
