"""One training on one GPU, natively on its server and from a client through the engine, in turns, by batch size.

All of it in one lease, so that both are of the same GPU. Natively is a step in the lease's own job, as root, whatever
the pool's policy lets users do; the program is the same release's on both sides. The second turn begins with the way
that was last in the first, so that what drifts with time is in both.

`stdout`: of each job, under a line `== turn 1 of 2: native 64`, the document of elastic-ai-train, with what its calls
cost (--costs) where the release on that machine can tell. `facts`: server, emulated, engine, engine_release.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from validation.base.counting import number_of
from validation.probes import ProbeDoc, remoting
from validation.probes.tool import Ran, document, run_tool

PROGRAM = "elastic-ai-train"
ON_SERVER = "/usr/lib/elastic-ai/lease-server/bin/train"  # role remoting_server installs it
WAYS: tuple[Literal["native"], Literal["remote"]] = ("native", "remote")
HEADING = re.compile(r"^== turn (\d+) of (\d+): (native|remote) (\d+)$", re.MULTILINE)
LEAST_S = 30.0  # of a job
COSTS = "--costs"
STEP = ("srun", "--quiet", "-n1", "--chdir=/", "--mpi=none")


@dataclass
class Asked:
    """What is asked of this probe."""

    server: str  # GPU server
    batches: list[str]  # numbers of images of a step
    turns: int  # how often each of both ways is taken with each batch
    steps: int  # of each job
    inputs: int  # numbers of an image
    hidden: int  # width of the network
    limit_s: float  # all jobs together may take so long


def order(turn: int) -> tuple[str, str]:
    """Which way comes first in this turn."""
    first, second = WAYS
    return (first, second) if turn % 2 else (second, first)


def commands(lease: int, uuid: str) -> dict[str, list[str]]:
    """How a program is started each way, without its options."""
    there = [*STEP, f"--jobid={lease}", "--overlap", "--mem=0", "env", f"CUDA_VISIBLE_DEVICES={uuid}", ON_SERVER]
    return {"native": there, "remote": [remoting.COMMAND, "run", "--lease", str(lease), "--", PROGRAM]}


def _device(lease: int) -> str:
    """The UUID of the lease's GPU, as its programs see it."""
    command = [*remoting.RUN, "--lease", str(lease), "--", *remoting.attempt("device")]
    seen = remoting.answer(run_tool(command, remoting.WAIT_S), "the lease's GPU").get("devices", [])
    if len(seen) != 1:
        raise remoting.Unmet(f"a lease of one GPU shows {number_of(len(seen), 'device')}")
    return str(seen[0]["uuid"])


def in_turns(args: Asked, one: Callable[[str, str, float], Ran]) -> str:
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


def options_of(args: Asked, *more: str) -> list[str]:
    """Of elastic-ai-train, but for the batch."""
    options = ["--json", "--gpus", "1", "--steps", str(args.steps), *more]
    return [*options, "--inputs", str(args.inputs), "--hidden", str(args.hidden)]


def train(args: Asked, *more: str) -> Ran:
    """All jobs, with more options; Unmet with its turn where one did not train."""
    options = options_of(args, *more)
    with remoting.leased("-n", "1", "-l", args.server) as lease:
        ways = commands(int(lease["lease"]), _device(int(lease["lease"])))

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
        facts: dict[str, Any] = {"server": args.server, **remoting.engine()}
        try:
            facts["emulated"] = any(gpu["emulated"] for gpu in remoting.pool_of([args.server]))
            return train(args, *more), facts, None
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND], 0, "", ""), facts, str(fault)

    return document(kind, PROGRAM, measure, lambda _: remoting.engine()["engine_release"])
