"""Parts of a GPU change and nothing starts anew: boot ids of server and client around each way to cut it.

All parts of each whole are leased at the same time, one whole after the other; the server's boot id is read by a step
in one of the leases' jobs, as root.

`stdout`: {"before": IDS, "changes": [{"parts", "seconds", "ids": IDS}, ...]}; IDS: {"server", "client"}; seconds: from
when the parts before are given back until all of these are leased. `facts`: server, emulated, engine, engine_release.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.measures.remoting.remoting_train_probe import STEP
from validation.probes import ProbeDoc, remoting
from validation.probes.tool import Ran, document, run_tool

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass
class Asked:
    """What is asked of this probe."""

    server: str  # GPU server
    wholes: list[str]  # ways to cut a GPU: 1/2+1/2


def ids(lease: int) -> dict[str, str]:
    """Boot ids now; the server's by a step in this lease's job."""
    ran = run_tool([*STEP, f"--jobid={lease}", "--overlap", "--mem=0", "env", "cat", BOOT_ID], remoting.WAIT_S)
    if ran.returncode or not ran.stdout.strip():
        raise remoting.Unmet(f"the server's boot id cannot be read: {remoting.said(ran)}")
    return {"server": ran.stdout.strip(), "client": Path(BOOT_ID).read_text(encoding="utf-8").strip()}


def measure_changes(args: Asked) -> dict[str, Any]:
    """A whole GPU first, then each way to cut it."""
    gpus = remoting.pool_of([args.server])
    changes: list[dict[str, Any]] = []
    with ExitStack() as others:
        if len(gpus) > 1:
            others.enter_context(remoting.leased("-n", str(len(gpus) - 1), "-l", args.server))
        with remoting.leased("-n", "1", "-l", args.server) as lease:
            before = ids(int(lease["lease"]))
        for whole in args.wholes:
            began, parts = time.monotonic(), whole.split("+")
            with ExitStack() as stack:
                for part in parts:
                    lease = stack.enter_context(remoting.leased("-n", "1", "-p", part, "-l", args.server))
                seconds = time.monotonic() - began
                changes.append({"parts": parts, "seconds": seconds, "ids": ids(int(lease["lease"]))})
    return {"before": before, "changes": changes}


def probe(args: Asked) -> ProbeDoc:
    """Boot ids before and after each change of parts."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"server": args.server, **remoting.engine()}
        try:
            facts["emulated"] = any(gpu["emulated"] for gpu in remoting.gpus_of([args.server]))
            return Ran([remoting.COMMAND, "lease"], 0, json.dumps(measure_changes(args)), ""), facts, None
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND, "lease"], 0, "", ""), facts, str(fault)

    return document("remoting-noreboot", remoting.COMMAND, measure, lambda _: remoting.engine()["engine_release"])
