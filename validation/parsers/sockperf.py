"""sockperf ping-pong over TCP: round trip times. The probe hands over block medians and percentiles of sockperf's full
log; the summary that sockperf printed has to agree with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from validation.model import Sample, Scalar
from validation.parsers.common import Parsed, ParseError, number, plain
from validation.probes import ProbeDoc

MIN_BLOCKS = 10
TOLERANCE = 0.02
"""By what share the output's percentile may lie outside what the log has around it.

The two are compared to catch another unit, another run or a half round trip, not a nanosecond: the log's times are
cut to whole nanoseconds one by one, the output's are computed before they are cut.
"""


def _find(pattern: str, text: str, what: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise ParseError(f"sockperf: no {what} in its output")
    return match.group(1)


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`tcp_rtt_us`, the median of each block of the run (at least 10), and `tcp_rtt_p99_us`; full round trips."""
    text, facts = doc["stdout"], doc["facts"]
    _find(r"(# TCP)$", text, "sign of TCP")
    _find(r"Summary: Round trip is ([\d.]+) usec$", text, "full round trip summary")
    if re.search(r"<MIN> observation =\s+[\d.]+\n", text) is None:
        raise ParseError("sockperf: its output is cut before the end")
    dropped = _find(r"# dropped messages = (\d+);", text, "count of dropped messages")
    if dropped != "0":
        raise ParseError(f"sockperf: {dropped} messages were dropped on TCP")
    run_time = float(_find(r"\[Total Run\] RunTime=([\d.]+) sec;", text, "run time"))
    seconds = params.get("seconds")
    if isinstance(seconds, (int, float)) and run_time < 0.9 * seconds:
        raise ParseError(f"sockperf ran {run_time:g} s instead of {seconds:g} s")
    observed = int(_find(r"Total (\d+) observations", text, "count of observations"))
    if facts["observations"] != observed:
        raise ParseError(f"sockperf counted {observed} observations, the probe {facts['observations']}")
    blocks = [number(v, "sockperf: block median") for v in facts["block_medians_us"]]
    if len(blocks) < MIN_BLOCKS:
        raise ParseError(f"sockperf: {len(blocks)} blocks, at least {MIN_BLOCKS} are needed")
    p99 = number(facts["p99_us"], "sockperf: 99th percentile")
    for name, shown, value in (("50.000", "median", facts["p50_us"]), ("99.000", "99th percentile", p99)):
        said = float(_find(rf"percentile {re.escape(name)} =\s+([\d.]+)$", text, shown))
        low, high = (number(v, f"sockperf: around the {shown}") for v in facts[f"p{name[:2]}_around_us"])
        if not low <= number(value, f"sockperf: {shown}") <= high:
            raise ParseError(f"sockperf: {shown} {value:g} us does not lie in its log's {low:g} to {high:g} us")
        if not low * (1 - TOLERANCE) <= said <= high * (1 + TOLERANCE):
            raise ParseError(f"sockperf: {shown} {said:g} us in its output, {low:g} to {high:g} us in its log")
    if not min(blocks) <= float(facts["p50_us"]) <= max(blocks):
        raise ParseError("sockperf: the block medians do not enclose the median")
    samples = [Sample(metric="tcp_rtt_us", value=v, unit="us") for v in blocks]
    samples.append(Sample(metric="tcp_rtt_p99_us", value=p99, unit="us"))
    return samples, plain(facts, drop=("block_medians_us", "p50_around_us", "p99_around_us"))
