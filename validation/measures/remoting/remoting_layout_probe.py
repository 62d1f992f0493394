"""One training on as many GPUs in the layouts of the reference architecture, all from one GPU server, in turns.

With four GPUs: N4 its own without an engine, L4 its own through the engine, L2R2 two of its own and two of another
server, R4 four of that server. As many GPUs as both servers have, four at most; without another server N and L alone.
Natively is a step in the lease's own job, as root, whatever the pool's policy lets users do.

`stdout`: of each job, under a line `== turn 1 of 2: L2R2 4`, the document of elastic-ai-train. `facts`: server, other,
gpus (how many), own and others (UUIDs of both servers' GPUs), emulated, engine, engine_release.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from validation.measures.remoting import remoting_train_probe
from validation.measures.remoting.remoting_worlds_probe import options, remotely, trained
from validation.probes import ProbeDoc, remoting, remoting_program
from validation.probes.tool import Ran, document

MOST = 4


@dataclass
class Asked:
    """What is asked of this probe, which runs on `server`."""

    server: str  # GPU server whose own GPUs are N and L
    turns: int  # how often each layout is taken
    batch: int  # images of a step on each GPU
    steps: int  # of each job
    inputs: int  # numbers of an image
    hidden: int  # width of the network
    limit_s: float  # all jobs together may take so long
    other: str = ""  # GPU server whose GPUs are R
    load: list[str] = field(default_factory=list)  # what PyTorch trains; empty: elastic-ai-train


def layouts(gpus: int, other: str) -> list[str]:
    """Names of the layouts with so many GPUs."""
    mixed = [f"L{gpus // 2}R{gpus // 2}"] if gpus % 2 == 0 else []
    return [f"N{gpus}", f"L{gpus}", *([*mixed, f"R{gpus}"] if other else [])]


def gpus_of_each(own: int, others: int | None) -> int:
    """With how many GPUs: as many as both have, four at most, and two halves where they are several."""
    count = min(MOST, own, own if others is None else others)
    return count if count == 1 else count // 2 * 2


def uuids(server: str, count: int) -> list[str]:
    """Of all of the server's GPUs, as the programs of a lease see them."""
    with remoting.leased("-n", str(count), "-l", server) as lease:
        return remoting_train_probe.devices(int(lease["lease"]))


class Places:
    """Both servers and what they have."""

    def __init__(self, args: Asked, counts: dict[str, int], gpus: int, until: float) -> None:
        """counts: GPUs of each server; gpus: of a job."""
        self.args, self.counts, self.gpus, self.until = args, counts, gpus, until
        self.emulated = bool(args.load) and any(gpu["emulated"] for gpu in remoting.gpus_of([args.server]))
        self.given = options(gpus, args.batch, args.steps, args.inputs, args.hidden, args.load)

    def native(self) -> str:
        """N: in a lease's own job, without its engine."""
        load = self.args.load
        with remoting.leased("-n", str(self.gpus), "-l", self.args.server, *remoting_program.wish(load)) as lease:
            number = int(lease["lease"])
            uuids = remoting_train_probe.devices(number, load)
            way = remoting_train_probe.commands(number, uuids, load, self.emulated)["native"]
            return trained([*way, *self.given], self.until)

    def mixed(self) -> str:
        """L and R: of both servers all but half of a job's GPUs are leased for the while."""
        both = [self.args.server, self.args.other]
        with ExitStack() as stack:
            for server in both:
                more = self.counts[server] - self.gpus // 2
                if more:
                    stack.enter_context(remoting.leased("-n", str(more), "-l", server))
            return remotely(self.gpus, both, self.given, self.until, self.args.load)

    def train(self, layout: str) -> str:
        """The document of a job in that layout."""
        if layout.startswith("N"):
            return self.native()
        if "R" in layout and "L" in layout:
            return self.mixed()
        server = self.args.server if layout.startswith("L") else self.args.other
        return remotely(self.gpus, [server], self.given, self.until, self.args.load)


def train(args: Asked, places: Places) -> str:
    """All jobs; Unmet with its turn where one did not train."""
    outputs: list[str] = []
    names = layouts(places.gpus, args.other)
    for turn in range(1, args.turns + 1):
        for name in names if turn % 2 else reversed(names):
            try:
                outputs.append(f"== turn {turn} of {args.turns}: {name} {places.gpus}\n{places.train(name)}\n")
            except remoting.Unmet as fault:
                raise remoting.Unmet(f"turn {turn}, {name}: {fault}") from None
    return "".join(outputs)


def probe(args: Asked) -> ProbeDoc:
    """Losses, and seconds of each step, of every job."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"server": args.server, "other": args.other, "client": os.uname().nodename}
        facts |= remoting_program.facts(args.load)
        try:
            until = time.monotonic() + args.limit_s
            servers = [args.server, *([args.other] if args.other else [])]
            there = remoting.pool_of(servers)
            counts = {name: sum(gpu["node"] == name for gpu in there) for name in servers}
            gpus = gpus_of_each(counts[args.server], counts[args.other] if args.other else None)
            facts |= {"gpus": gpus, "emulated": any(gpu["emulated"] for gpu in there)}
            facts["own"] = uuids(args.server, counts[args.server])
            facts["others"] = uuids(args.other, counts[args.other]) if args.other else []
            return Ran([remoting.COMMAND, "run"], 0, train(args, Places(args, counts, gpus, until)), ""), facts, None
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND, "run"], 0, "", ""), facts, str(fault)

    release = remoting_program.facts(args.load)["engine_release"]
    return document("remoting-layout", remoting_program.tool_of(args.load), measure, lambda _: release)
