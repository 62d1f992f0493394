"""Tenants that train on parts of one GPU at the same time, beside one that trains on all of it, in turns.

The server's other GPUs are leased for the while, so that all parts lie on the one that is left. All tenants are ready
before any begins; each does the same training, and what they did together follows from the times of their steps, by the
one clock of this client.

`stdout`: of each program, under a line `== turn 1 of 2: 1/2 0` (the part, its number), the document of
elastic-ai-train. `facts`: server, parts, emulated, engine, engine_release.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from validation.probes import ProbeDoc, remoting, remoting_program
from validation.probes.tool import Ran, document

WHOLE = "1"
HEADING = re.compile(r"^== turn (\d+) of (\d+): (\d+(?:/\d+)?) (\d+)$", re.MULTILINE)
END_S = 30.0  # for a tenant that did not get so far, to give its lease back


@dataclass
class Asked:
    """What is asked of this probe."""

    server: str  # GPU server
    parts: list[str]  # of a whole GPU: 1/2, 1/2
    turns: int  # how often the whole, and the parts, are taken
    steps: int  # of each tenant
    batch: int  # images of a step of each tenant
    inputs: int  # numbers of an image
    hidden: int  # width of the network
    limit_s: float  # everything may take so long
    load: list[str] = field(default_factory=list)  # what PyTorch trains; empty: elastic-ai-train


def said_in(tenant: subprocess.Popen[str], left_s: float) -> Ran:
    """All that a tenant says until it ends, by itself or after so long."""
    try:
        out, err = tenant.communicate(timeout=left_s)
    except subprocess.TimeoutExpired:
        tenant.terminate()  # toolkit run gives the lease back
        out, err = tenant.communicate(timeout=END_S)
    return Ran([], tenant.returncode, out, err)


def let_go(tenant: subprocess.Popen[str]) -> None:
    """A tenant that is still there when another's fault has ended the turn: the end of its input ends one that waits;
    what does not listen is told to give its lease back, and killed at last."""
    for last_word in (tenant.terminate, tenant.kill):
        if tenant.poll() is not None:
            return
        with suppress(subprocess.TimeoutExpired):
            tenant.communicate(timeout=END_S)
            return
        last_word()
    tenant.wait()


def together(
    server: str, parts: Sequence[str], options: Sequence[str], until: float, load: Sequence[str] = ()
) -> list[str]:
    """The documents of tenants with these parts, who began at the same time; Unmet where one did not train."""
    tenants: list[subprocess.Popen[str]] = []
    program = remoting_program.here(load)
    try:
        for part in parts:
            cut = [] if part == WHOLE else ["-p", part]
            lease = ["-n", "1", *cut, "-l", server, *remoting_program.wish(load)]
            tenants.append(remoting.start([remoting.COMMAND, "run", *lease, "--", *program, "--wait", *options]))
        for part, tenant in zip(parts, tenants):
            assert tenant.stdout is not None
            line = tenant.stdout.readline()
            if not line.startswith('{"ready"'):
                tenant.terminate()
                raise remoting.Unmet(f"the tenant of {part} did not start: {remoting.said(said_in(tenant, END_S))}")
        for tenant in tenants:
            assert tenant.stdin is not None
            with suppress(BrokenPipeError):  # how it ended is heard next
                tenant.stdin.write("\n")
                tenant.stdin.flush()
        documents = []
        for part, tenant in zip(parts, tenants):
            ran = said_in(tenant, max(END_S, until - time.monotonic()))
            if ran.returncode:
                raise remoting.Unmet(f"the tenant of {part} did not train: {remoting.said(ran)}")
            documents.append(ran.stdout.strip())
        return documents
    finally:
        for tenant in tenants:
            let_go(tenant)


def measure_turns(args: Asked) -> str:
    """All turns of the whole and of the parts."""
    until = time.monotonic() + args.limit_s
    options = ["--gpus", "1", "--steps", str(args.steps), "--batch", str(args.batch)]
    options += [] if args.load else ["--json", "--inputs", str(args.inputs), "--hidden", str(args.hidden)]
    outputs: list[str] = []
    gpus = remoting.pool_of([args.server])
    with ExitStack() as stack:
        if len(gpus) > 1:
            stack.enter_context(remoting.leased("-n", str(len(gpus) - 1), "-l", args.server))
        for turn in range(1, args.turns + 1):
            for parts in ([WHOLE], args.parts) if turn % 2 else (args.parts, [WHOLE]):
                try:
                    found = together(args.server, parts, options, until, args.load)
                except remoting.Unmet as fault:
                    raise remoting.Unmet(f"turn {turn}: {fault}") from None
                for number, (part, text) in enumerate(zip(parts, found)):
                    outputs.append(f"== turn {turn} of {args.turns}: {part} {number}\n{text}\n")
    return "".join(outputs)


def probe(args: Asked) -> ProbeDoc:
    """Losses, and the times of all steps, of every tenant."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"server": args.server, "parts": args.parts, **remoting_program.facts(args.load)}
        try:
            facts["emulated"] = any(gpu["emulated"] for gpu in remoting.gpus_of([args.server]))
            return Ran([remoting.COMMAND, "run"], 0, measure_turns(args), ""), facts, None
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND, "run"], 0, "", ""), facts, str(fault)

    release = remoting_program.facts(args.load)["engine_release"]
    return document("remoting-shares", remoting_program.tool_of(args.load), measure, lambda _: release)
