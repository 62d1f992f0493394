"""One training on one GPU, natively on its server and from a client through the engine, in turns, by batch size.

All of it in one lease, so that both are of the same GPU. Natively is a step in the lease's own job, as root, whatever
the pool's policy lets users do; the program is the same release's on both sides. The second turn begins with the way
that was last in the first, so that what drifts with time is in both.

With a load (remoting_program) it is a framework's program by the engine of that, whose one process does all batch sizes
of a turn, because a framework takes seconds to start.

`stdout`: of each job, under a line `== turn 1 of 2: native 64`, the document of elastic-ai-train, with what its calls
cost (--costs) where the release on that machine can tell. `facts`: server, emulated, engine, engine_release; where
the pool's leases go by verbs also packets, sent and received meanwhile by the RDMA ports of the client.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from validation.base.counting import number_of
from validation.probes import ProbeDoc, remoting, remoting_program
from validation.probes.tool import Ran, document, run_tool

WAYS: tuple[Literal["native"], Literal["remote"]] = ("native", "remote")
HEADING = re.compile(r"^== turn (\d+) of (\d+): (native|remote) (\d+)$", re.MULTILINE)
LEAST_S = 30.0  # of a job
COSTS = "--costs"
VERBS = "verbs"  # as remoting_server_transport says it
STEP = ("srun", "--quiet", "-n1", "--chdir=/", "--mpi=none")


@dataclass
class Jobs:
    """Jobs of one program in turns."""

    server: str  # GPU server
    batches: list[str]  # numbers of images of a step
    turns: int  # how often each of both ways is taken with each batch
    steps: int  # of each job
    inputs: int  # numbers of an image
    hidden: int  # width of the network
    limit_s: float  # all jobs together may take so long


@dataclass
class Asked(Jobs):
    """What is asked of this probe."""

    load: list[str] = field(default_factory=list)  # what a framework trains; empty: elastic-ai-train
    transport: str = "tcp"  # what the pool's leases go by


def order(turn: int) -> tuple[str, str]:
    """Which way comes first in this turn."""
    first, second = WAYS
    return (first, second) if turn % 2 else (second, first)


def commands(
    lease: int, uuids: Sequence[str], load: Sequence[str] = (), emulated: bool = False
) -> dict[str, list[str]]:
    """How a program is started each way, without its options."""
    step = [*STEP, f"--jobid={lease}", "--overlap", "--mem=0", "env"]
    remote = [remoting.COMMAND, "run", "--lease", str(lease), "--"]
    return {
        "native": [*step, *remoting_program.there(load, uuids, emulated)],
        "remote": [*remote, *remoting_program.here(load)],
    }


def devices(lease: int, load: Sequence[str] = ()) -> list[str]:
    """The UUIDs of a lease's GPUs, as its programs see them; with a load, as the lease tells its programs."""
    framework = remoting_program.framework_of(load)
    if framework:
        words = f"import os, {framework.name}; print(os.environ['ELASTIC_AI_GPUS'])"
        shows = [remoting_program.python(framework), "-c", words]
        told = run_tool([remoting.COMMAND, "run", "--lease", str(lease), "--", *shows], remoting.WAIT_S)
        try:
            return [str(gpu["uuid"]) for gpu in json.loads(told.stdout)]
        except (ValueError, KeyError, TypeError):
            raise remoting.Unmet(f"the lease's GPUs: {remoting.said(told)}") from None
    command = [*remoting.RUN, "--lease", str(lease), "--", *remoting.attempt("device")]
    seen = remoting.answer(run_tool(command, remoting.WAIT_S), "the lease's GPUs")
    return [str(gpu["uuid"]) for gpu in seen.get("devices", [])]


def loads_in_turns(args: Jobs, ways: Mapping[str, Sequence[str]], more: Sequence[str]) -> str:
    """The same of a load, one process for all batch sizes of a way and turn."""
    outputs: list[str] = []
    until = time.monotonic() + args.limit_s
    batches = ",".join(args.batches)
    for turn in range(1, args.turns + 1):
        for way in order(turn):
            command = [*ways[way], "--steps", str(args.steps), "--batch", batches, *more]
            ran = run_tool(command, max(LEAST_S, until - time.monotonic()))
            if ran.returncode:
                raise remoting.Unmet(f"turn {turn}, {way}: {remoting.said(ran)}")
            for batch, text in zip(args.batches, remoting_program.documents(ran.stdout)):
                outputs.append(f"== turn {turn} of {args.turns}: {way} {batch}\n{text}\n")
    return "".join(outputs)


def in_turns(args: Jobs, one: Callable[[str, str, float], Ran]) -> str:
    """Outputs of all jobs under their headings; `one`: way, batch, seconds -> a job. Unmet with its turn where one did
    not train.
    """
    outputs: list[str] = []
    until = time.monotonic() + args.limit_s
    for turn in range(1, args.turns + 1):
        for batch in args.batches:
            for way in order(turn):
                ran = one(way, batch, max(LEAST_S, until - time.monotonic()))
                if ran.returncode:
                    raise remoting.Unmet(f"turn {turn}, {way}, batch {batch}: {remoting.said(ran)}")
                outputs.append(f"== turn {turn} of {args.turns}: {way} {batch}\n{ran.stdout.strip()}\n")
    return "".join(outputs)


def options_of(args: Jobs, *more: str) -> list[str]:
    """Of elastic-ai-train, but for the batch."""
    options = ["--json", "--gpus", "1", "--steps", str(args.steps), *more]
    return [*options, "--inputs", str(args.inputs), "--hidden", str(args.hidden)]


def train(args: Asked, *more: str) -> Ran:
    """All jobs, with more options; Unmet with its turn where one did not train."""
    options = options_of(args, *more)
    emulated = bool(args.load) and any(gpu["emulated"] for gpu in remoting.gpus_of([args.server]))
    with remoting.leased("-n", "1", "-l", args.server, *remoting_program.wish(args.load)) as lease:
        number = int(lease["lease"])
        uuids = devices(number, args.load)
        if len(uuids) != 1:
            raise remoting.Unmet(f"a lease of one GPU shows {number_of(len(uuids), 'device')}")
        ways = commands(number, uuids, args.load, emulated)
        if args.load:
            return Ran(ways["remote"], 0, loads_in_turns(args, ways, [one for one in more if one != COSTS]), "")

        def one(way: str, batch: str, left: float) -> Ran:
            ran = run_tool([*ways[way], *options, "--batch", batch], left)
            if ran.returncode and f"unrecognized arguments: {COSTS}" in ran.stderr:  # an older release
                fewer = [option for option in options if option != COSTS]
                ran = run_tool([*ways[way], *fewer, "--batch", batch], left)
            return ran

        output = in_turns(args, one)
    return Ran([*ways["remote"], *options], 0, output, "")


def probe(args: Asked) -> ProbeDoc:
    """Losses, seconds of each step, and what its calls cost, of every job."""
    return both_ways("remoting-train", args, COSTS)


def both_ways(kind: str, args: Asked, *more: str) -> ProbeDoc:
    """The document of a kind whose jobs are these, with more options."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"server": args.server, **remoting_program.facts(args.load)}
        try:
            facts["emulated"] = any(gpu["emulated"] for gpu in remoting.pool_of([args.server]))
            if args.transport != VERBS:
                return train(args, *more), facts, None
            before = remoting.port_packets()
            ran = train(args, *more)
            facts["packets"] = {what: count - before[what] for what, count in remoting.port_packets().items()}
            return ran, facts, None
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND], 0, "", ""), facts, str(fault)

    release = remoting_program.facts(args.load)["engine_release"]
    return document(kind, remoting_program.tool_of(args.load), measure, lambda _: release)
