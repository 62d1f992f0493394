"""Copies between a client's memory and GPUs of the pool, and between those GPUs, through the engine; data verified.

The whole matrix of host and all GPUs of the named servers in one lease, with the program that users have too.
"""

from __future__ import annotations

import argparse
from typing import Any

from validation.probes import ProbeDoc, remoting
from validation.probes.tool import Ran, document, run_tool

BENCH = "elastic-ai-copybench"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this probe."""
    parser.add_argument("--servers", required=True, help="GPU servers, separated by commas")
    parser.add_argument("--size-bytes", type=int, required=True, help="of each copy that is timed for bandwidth")
    parser.add_argument("--repeat", type=int, required=True, help="timed copies of each pair")
    parser.add_argument("--latency-count", type=int, required=True, help="copies of 4 bytes of each pair")
    parser.add_argument("--limit-s", type=float, required=True, help="the program may take so long")


def probe(args: argparse.Namespace) -> ProbeDoc:
    """Bandwidths (GB/s) and latencies (us) of every ordered pair of host and GPUs."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        servers = args.servers.split(",")
        facts: dict[str, Any] = {"servers": servers, **remoting.engine()}
        try:
            gpus = remoting.pool_of(servers)
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND], 0, "", ""), facts, str(fault)
        facts["gpus"] = len(gpus)
        facts["emulated"] = any(gpu["emulated"] for gpu in gpus)
        command = [remoting.COMMAND, "run", "-n", str(len(gpus)), "-l", args.servers, "--", BENCH]
        command += ["--bytes", str(args.size_bytes), "--repeat", str(args.repeat)]
        command += ["--latency-count", str(args.latency_count), "--json"]
        return run_tool(command, args.limit_s), facts, None

    return document("remoting-copy", BENCH, measure, lambda _: remoting.engine()["engine_release"])
