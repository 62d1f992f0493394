"""sockperf ping-pong over TCP: round trip times. The probe hands over block medians and percentiles of sockperf's full
log; the summary that sockperf printed has to agree with them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, number, once, plain, real
from validation.measures.tcp.tcp_latency_probe import BLOCKS
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc

TOLERANCE = 0.02
"""By what share the output's percentile may lie outside what the log has around it.

The two are compared to catch another unit, another run or a half round trip, not a nanosecond: the log's times are
cut to whole nanoseconds one by one, the output's are computed before they are cut.
"""


CUT_US = 0.005
"""By how much a time of the log may lie beyond one of the output: each is cut or rounded to nanoseconds. Project
default."""


def _find(pattern: str, text: str, what: str) -> str:
    return once(pattern, text, f"sockperf: {what}").group(1)


def _percentile(name: str, text: str) -> float:
    return real(_find(rf"percentile {re.escape(name)} =\s+([\d.]+)$", text, f"percentile {name}"), "sockperf")


def _held_against(blocks: list[float], observed: int, text: str) -> None:
    """ParseError where the output's percentiles rule the block medians out.

    Half of a block's observations are at or below its median. So where 11 of 20 medians are at or below a value, 27 %
    of all observations are, and the 25th percentile is; the same from above. One rank is left to how sockperf counts.
    """
    least = real(_find(r"<MIN> observation =\s+([\d.]+)\n", text, "least observation"), "sockperf")
    most = real(_find(r"<MAX> observation =\s+([\d.]+)$", text, "greatest observation"), "sockperf")
    ordered = sorted(blocks)
    half = (observed // BLOCKS + 1) // 2  # of a block; the last observations of all are in no block
    if ordered[0] < least - CUT_US or ordered[-1] > most + CUT_US:
        raise ParseError(
            f"sockperf: block medians of {ordered[0]:g} to {ordered[-1]:g} us, all between {least:g} and {most:g}"
        )
    for name, share in (("25.000", 0.25), ("50.000", 0.5), ("75.000", 0.75)):
        below, above = (math.ceil((part * observed + 1) / half) for part in (share, 1 - share))
        low = ordered[-above] if above <= BLOCKS else least
        high = ordered[below - 1] if below <= BLOCKS else most
        if not low - CUT_US <= _percentile(name, text) <= high + CUT_US:
            raise ParseError(f"sockperf: the block medians do not fit percentile {name} of its output")


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`tcp_rtt_us`, the median of each of 20 blocks of the run, and `tcp_rtt_p99_us`; full round trips."""
    text, facts = doc["stdout"], doc["facts"]
    _find(r"(# TCP)$", text, "sign of TCP")
    _find(r"Summary: Round trip is ([\d.]+) usec$", text, "full round trip summary")
    for count in ("dropped", "duplicated", "out-of-order"):
        lost = _find(rf"# {count} messages = (\d+)\b", text, f"count of {count} messages")
        if lost != "0":
            raise ParseError(f"sockperf: {number_of(lost, 'message')} were {count} on TCP")
    run_time = real(_find(r"\[Total Run\] RunTime=([\d.]+) sec;", text, "run time"), "sockperf: run time")
    seconds = params.get("seconds")
    if isinstance(seconds, (int, float)) and run_time < 0.9 * seconds:
        raise ParseError(f"sockperf ran {run_time:g} s instead of {seconds:g} s")
    observed = real(_find(r"Total (\d+) observations", text, "count of observations"), "sockperf: observations")
    if facts["observations"] != observed:
        raise ParseError(f"sockperf counted {observed:g} observations, the probe {facts['observations']}")
    blocks = [number(v, "sockperf: block median") for v in facts["block_medians_us"]]
    if len(blocks) != BLOCKS:
        raise ParseError(f"sockperf: {len(blocks)} block medians, {BLOCKS} are handed over")
    p99 = number(facts["p99_us"], "sockperf: 99th percentile")
    for name, shown, value in (("50.000", "median", facts["p50_us"]), ("99.000", "99th percentile", p99)):
        said = _percentile(name, text)
        low, high = (number(v, f"sockperf: around the {shown}") for v in facts[f"p{name[:2]}_around_us"])
        if not low <= number(value, f"sockperf: {shown}") <= high:
            raise ParseError(f"sockperf: {shown} {value:g} us does not lie in its log's {low:g} to {high:g} us")
        if not low * (1 - TOLERANCE) <= said <= high * (1 + TOLERANCE):
            raise ParseError(f"sockperf: {shown} {said:g} us in its output, {low:g} to {high:g} us in its log")
    _held_against(blocks, int(observed), text)
    samples = [Sample(metric="tcp_rtt_us", value=v, unit="us") for v in blocks]
    samples.append(Sample(metric="tcp_rtt_p99_us", value=p99, unit="us"))
    return samples, plain(facts, drop=("block_medians_us", "p50_around_us", "p99_around_us"))
