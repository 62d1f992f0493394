"""What the probes of trainings on several GPUs share: one job of elastic-ai-train on leased GPUs, and its heading."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from validation.measures.remoting.remoting_train_probe import LEAST_S
from validation.probes import remoting, remoting_program
from validation.probes.tool import run_tool

HEADING = re.compile(r"^== turn (\d+) of (\d+): (\S+) (\d+)$", re.MULTILINE)


def options(gpus: int, batch: int, steps: int, inputs: int, hidden: int, load: Sequence[str] = ()) -> list[str]:
    """Of the program; batch: images of a step on each GPU."""
    sizes = [] if load else ["--json", "--inputs", str(inputs), "--hidden", str(hidden)]
    return ["--gpus", str(gpus), "--batch", str(gpus * batch), "--steps", str(steps), *sizes]


def remotely(gpus: int, servers: Sequence[str], given: Sequence[str], until: float, load: Sequence[str] = ()) -> str:
    """The program's document, by a lease of its own of whole GPUs on these servers; Unmet where it did not train."""
    lease = ["-n", str(gpus), "-l", ",".join(servers), *remoting_program.wish(load)]
    return trained([remoting.COMMAND, "run", *lease, "--", *remoting_program.here(load), *given], until)


def trained(command: Sequence[str], until: float) -> str:
    """What the command printed; Unmet where it failed."""
    ran = run_tool(list(command), max(LEAST_S, until - time.monotonic()))
    if ran.returncode:
        raise remoting.Unmet(remoting.said(ran))
    return ran.stdout.strip()
