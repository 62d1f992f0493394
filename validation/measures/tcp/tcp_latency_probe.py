"""TCP round trip time to another node, with sockperf's ping-pong: 14-byte messages, one in flight.

`stdout`: sockperf's summary. `facts`: observations (int), block_medians_us (list of float, 20: the observations in
order of time, cut into blocks of equal count), p50_us, p99_us (full round trip), p50_around_us, p99_around_us
(percentiles half a percent below and above), source, destination.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.tool import Ran, document, group, run_tool

BLOCKS = 20  # medians handed on: enough for an interval, few enough for a results file
AROUND = 0.005  # definitions of a percentile pick neighbours, which lie far apart in the tail of a busy node
MIN_OBSERVATIONS = 50 * BLOCKS


@dataclass
class Asked:
    """What is asked of this probe."""

    source: str  # this node's fabric address
    destination: str  # the serving node's fabric address
    port: int
    seconds: int  # measured time
    min_observations: int = MIN_OBSERVATIONS  # fewer are no measurement


def read_log(text: str) -> list[float]:
    """Round trip times (us) in order of time from sockperf's --full-log; a torn or foreign line is a ValueError."""
    _, found, rows = text.partition("packet, txTime(sec), rxTime(sec), rtt(usec)\n")
    if not found:
        raise ValueError("the log of observations has no header")
    lines = rows.splitlines()
    if len(lines) < 2 or set(lines.pop()) != {"-"}:  # sockperf closes the log with a line of dashes
        raise ValueError("the log of observations is empty or torn")
    times = [float(line.split(",")[3]) for line in lines]
    if min(times) <= 0:
        raise ValueError("the log of observations has a round trip of 0")
    return times


def block_medians(times_us: list[float], blocks: int = BLOCKS) -> list[float]:
    """Medians (us) of `blocks` consecutive parts of equal count: neighbours share a disturbance, blocks do not."""
    size = len(times_us) // blocks
    return [round(statistics.median(times_us[i * size : (i + 1) * size]), 3) for i in range(blocks)]


def percentile(times_us: list[float], fraction: float) -> float:
    """The smallest observation (us) that is not exceeded by `fraction` of all (nearest rank)."""
    ordered = sorted(times_us)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def _observe(args: Asked, stdout: str, log: Path) -> tuple[dict[str, Any], str | None]:
    facts: dict[str, Any] = {"source": args.source, "destination": args.destination}
    try:
        text = log.read_text()
        times = read_log(text)
    except (OSError, ValueError, IndexError) as error:
        return facts, f"sockperf: {error}"
    facts["observations"] = len(times)
    if len(times) < args.min_observations:
        return facts, f"sockperf took {len(times)} observations, fewer than {args.min_observations}"
    counted = group(r"Total (\d+) observations", stdout)
    if counted != str(len(times)):
        return facts, f"sockperf counted {counted or 'no'} observations, but logged {len(times)}"
    if not group(r"(# TCP)", stdout):
        return facts, "sockperf did not use TCP"
    if "--full-rtt" not in text[:4096]:
        return facts, "sockperf did not measure the full round trip"
    facts["block_medians_us"] = block_medians(times)
    for name, fraction in (("p50", 0.50), ("p99", 0.99)):
        facts[f"{name}_us"] = percentile(times, fraction)
        facts[f"{name}_around_us"] = [percentile(times, fraction + side) for side in (-AROUND, AROUND)]
    return facts, None


def probe(args: Asked) -> ProbeDoc:
    """Ping-pong for `seconds`; the median of each of BLOCKS blocks and the 99th percentile, us, full round trip."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        with tempfile.TemporaryDirectory(prefix="elastic-ai-") as folder:
            log = Path(folder, "observations.csv")
            command = ["sockperf", "ping-pong", "--tcp", "-i", args.destination, "-p", str(args.port)]
            command += ["--client_ip", args.source, "-t", str(args.seconds), "--full-rtt", "--full-log", str(log)]
            ran = run_tool(command)
            if ran.returncode != 0:
                return ran, {"source": args.source, "destination": args.destination}, None
            facts, error = _observe(args, ran.stdout, log)
            return ran, facts, error

    return document("tcp-latency", "sockperf", measure, lambda ran: group(r"version #(\S+)", ran.stdout))
