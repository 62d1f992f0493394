"""What a tenant of half a GPU notices of a neighbour on its other half: one that does its worst, one that fails.

The server's other GPUs are leased for the while. In turns the tenant trains alone; beside a neighbour that trains with
large batches without end; and beside one whose kernel writes where no memory is, while the tenant trains. After that a
neighbour trains again. With a load (remoting_program) tenant and noisy neighbour are PyTorch programs by the engine
torch; the failing kernel is of the site's first engine alone, and that case is left out.

`stdout`: under a line `== turn 1 of 2: alone` (noise, fault) the tenant's document of elastic-ai-train, or
`{"failed": WORDS}`; under `neighbour`, after each fault, `{"status", "words", "ended_s", "after"}`: how the program
ended, when by the client's clock, and the exit status of the one that came after. `facts`: server, emulated, engine,
engine_release.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from validation.measures.remoting.remoting_shares_probe import END_S, let_go, said_in
from validation.probes import ProbeDoc, remoting, remoting_program
from validation.probes.remoting_program import PROGRAM
from validation.probes.tool import Ran, document, run_tool

PART = "1/2"
CASES = ("alone", "noise", "fault")
HEADING = re.compile(r"^== turn (\d+) of (\d+): (alone|noise|fault|neighbour)$", re.MULTILINE)
WITHOUT_END = str(1 << 20)  # steps, the most that the program takes
STRAY_AT = "10"  # the step of the kernel that fails


@dataclass
class Asked:
    """What is asked of this probe."""

    server: str  # GPU server
    turns: int  # how often each case is taken
    steps: int  # of the tenant
    batch: int  # images of a step of the tenant
    noise: int  # images of a step of a neighbour that does its worst
    inputs: int  # numbers of an image
    hidden: int  # width of the network
    limit_s: float  # everything may take so long
    load: list[str] = field(default_factory=list)  # what PyTorch trains; empty: elastic-ai-train


def cases_of(load: Sequence[str]) -> tuple[str, ...]:
    """Beside whom the tenant trains."""
    return CASES[:2] if load else CASES


class Cases:
    """The three of them."""

    def __init__(self, args: Asked, until: float) -> None:
        """until: the monotonic clock at which all is over."""
        self.args, self.until = args, until

    def start(self, batch: int, *more: str) -> subprocess.Popen[str]:
        """A tenant that waits for the word to begin; Unmet where it did not get so far."""
        args, sizes = self.args, ["--wait", "--batch", str(batch)]
        sizes += [] if args.load else ["--json", "--inputs", str(args.inputs), "--hidden", str(args.hidden)]
        lease = ["run", "-n", "1", "-p", PART, "-l", args.server, *remoting_program.wish(args.load)]
        tenant = remoting.start([remoting.COMMAND, *lease, "--", *remoting_program.here(args.load), *sizes, *more])
        assert tenant.stdout is not None
        if not tenant.stdout.readline().startswith('{"ready"'):
            tenant.terminate()
            raise remoting.Unmet(f"a tenant did not start: {remoting.said(said_in(tenant, END_S))}")
        return tenant

    def end(self, tenant: subprocess.Popen[str]) -> str:
        """What the tenant that is measured says at its end."""
        ran = said_in(tenant, max(END_S, self.until - time.monotonic()))
        return ran.stdout.strip() if ran.returncode == 0 else json.dumps({"failed": remoting.said(ran)})

    def tenant(self) -> subprocess.Popen[str]:
        """The one that is measured."""
        return self.start(self.args.batch, "--steps", str(self.args.steps))

    def alone(self, stack: ExitStack) -> list[tuple[str, str]]:
        """Nobody else has anything of the GPU."""
        tenant = self.tenant()
        stack.callback(let_go, tenant)
        go(tenant)
        return [("alone", self.end(tenant))]

    def noise(self, stack: ExitStack) -> list[tuple[str, str]]:
        """The neighbour computes before the tenant begins, and still when it has ended."""
        neighbour = self.start(self.args.noise, "--steps", WITHOUT_END)
        stack.callback(stop, neighbour)
        go(neighbour)
        heard(neighbour, lambda line: line.split()[:1] == ["0"])
        tenant = self.tenant()
        stack.callback(let_go, tenant)
        go(tenant)
        found = self.end(tenant)
        if neighbour.poll() is not None:
            raise remoting.Unmet("the neighbour that was to do its worst ended before the tenant")
        return [("noise", found)]

    def fault(self, stack: ExitStack) -> list[tuple[str, str]]:
        """The neighbour's kernel fails while the tenant trains, and another neighbour comes."""
        tenant = self.tenant()
        stack.callback(let_go, tenant)
        neighbour = self.start(self.args.batch, "--steps", WITHOUT_END, "--stray", STRAY_AT)
        stack.callback(stop, neighbour)
        go(tenant)
        go(neighbour)
        words = heard(neighbour, lambda line: line.startswith(f"{PROGRAM}: "))
        ended_s = time.monotonic()
        document = self.end(tenant)
        status = said_in(neighbour, END_S).returncode
        again = [remoting.COMMAND, "run", "-n", "1", "-p", PART, "-l", self.args.server, "--", PROGRAM, "--json"]
        after = run_tool([*again, "--steps", "4", "--batch", str(self.args.batch)], remoting.WAIT_S)
        end = {"status": status, "words": words[:300], "ended_s": ended_s, "after": after.returncode}
        return [("fault", document), ("neighbour", json.dumps(end))]


def go(tenant: subprocess.Popen[str]) -> None:
    """The word to begin."""
    assert tenant.stdin is not None
    with suppress(BrokenPipeError):  # how it ended is heard next
        tenant.stdin.write("\n")
        tenant.stdin.flush()


def stop(neighbour: subprocess.Popen[str]) -> None:
    """One that trains without end: it gives its lease back."""
    if neighbour.poll() is None:
        neighbour.terminate()
    let_go(neighbour)


def heard(tenant: subprocess.Popen[str], wanted: Any) -> str:
    """The first line of its errors that is wanted; Unmet where it ends without one."""
    assert tenant.stderr is not None
    last = ""
    for line in tenant.stderr:
        if wanted(line):
            return line.strip()
        last = line.strip() or last
    raise remoting.Unmet(f"the neighbour ended without doing what it should: {last[:200]}")


def measure_turns(args: Asked) -> str:
    """All cases of all turns."""
    cases = Cases(args, time.monotonic() + args.limit_s)
    outputs: list[str] = []
    wanted = cases_of(args.load)
    gpus = remoting.pool_of([args.server])
    with ExitStack() as others:
        if len(gpus) > 1:
            others.enter_context(remoting.leased("-n", str(len(gpus) - 1), "-l", args.server))
        for turn in range(1, args.turns + 1):
            for case in wanted if turn % 2 else wanted[::-1]:
                try:
                    with ExitStack() as stack:
                        found = getattr(cases, case)(stack)
                except remoting.Unmet as fault:
                    raise remoting.Unmet(f"turn {turn}, {case}: {fault}") from None
                outputs += [f"== turn {turn} of {args.turns}: {name}\n{text}\n" for name, text in found]
    return "".join(outputs)


def probe(args: Asked) -> ProbeDoc:
    """The tenant's losses and times in each case, and the ends of its neighbours."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"server": args.server, **remoting_program.facts(args.load)}
        try:
            facts["emulated"] = any(gpu["emulated"] for gpu in remoting.gpus_of([args.server]))
            return Ran([remoting.COMMAND, "run"], 0, measure_turns(args), ""), facts, None
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND, "run"], 0, "", ""), facts, str(fault)

    release = remoting_program.facts(args.load)["engine_release"]
    return document("remoting-neighbours", remoting_program.tool_of(args.load), measure, lambda _: release)
