"""Copies between a client's memory and GPUs of the pool, and between those GPUs, through the engine; data verified.

The whole matrix of host and all GPUs of the named servers in one lease, with the program that users have too.

`stdout`: copybench's report. `facts`: servers, gpus (int), emulated, engine, engine_release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from validation.probes import ProbeDoc, remoting
from validation.probes.tool import Ran, document, run_tool

BENCH = "elastic-ai-copybench"


@dataclass
class Asked:
    """What is asked of this probe."""

    servers: list[str]  # GPU servers
    size_bytes: int  # of each copy that is timed for bandwidth
    repeat: int  # timed copies of each pair
    latency_count: int  # copies of 4 bytes of each pair
    limit_s: float  # the program may take so long


def probe(args: Asked) -> ProbeDoc:
    """Bandwidths (GB/s) and latencies (us) of every ordered pair of host and GPUs."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"servers": args.servers, **remoting.engine()}
        try:
            gpus = remoting.pool_of(args.servers)
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND], 0, "", ""), facts, str(fault)
        facts["gpus"] = len(gpus)
        facts["emulated"] = any(gpu["emulated"] for gpu in gpus)
        command = [*remoting.RUN, "-n", str(len(gpus)), "-l", ",".join(args.servers), "--", BENCH]
        command += ["--bytes", str(args.size_bytes), "--repeat", str(args.repeat)]
        command += ["--latency-count", str(args.latency_count), "--json"]
        return run_tool(command, args.limit_s), facts, None

    return document("remoting-copy", BENCH, measure, lambda _: remoting.engine()["engine_release"])
