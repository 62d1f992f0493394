"""iperf3 3.1 to 3.19, TCP: the receiver's rate per interval, from the client's JSON with `--get-server-output`.

The client's own intervals count what entered its socket buffer; what arrived is in `server_output_json`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, count, expect, json_report, number, plain, real
from validation.measures.tcp.tcp_bandwidth_probe import iperf3_report
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc

CONSISTENT = 0.25
"""How far the mean of the intervals may be from the rate over the whole test: they count the same bytes. Project
default."""


ROUNDED = 0.001
"""By what share a rate may differ from its bytes and seconds, which iperf3 prints unrounded. Project default."""
NEAR = 0.1
"""Share of an interval by which times may miss each other. Project default: a busy node's timers fire late, but by
one clock."""
LATE = 1.5
"""How much longer than planned, and a second, the receiver may take until all has arrived. Project default."""
FEWEST = 0.5
"""Share of the planned intervals that must be there. Project default: while a busy node stands still intervals run
together, but no time is missing between them."""
SAME = ("protocol", "num_streams", "omit", "duration", "reverse")
"""What both ends say of the test."""


def _rate(part: dict[str, Any], what: str) -> float:
    """bit/s of an interval or of the whole, held against its bytes and seconds."""
    rate, seconds = real(part["bits_per_second"], f"{what}: rate"), number(part["seconds"], f"{what}: seconds")
    carried = count(part["bytes"], f"{what}: bytes") * 8 / seconds
    if rate < 0 or abs(rate - carried) > ROUNDED * carried:
        raise ParseError(f"{what}: {rate / 1e9:.4g} Gbit/s, but its bytes and seconds are {carried / 1e9:.4g}")
    return rate


def _server(report: dict[str, Any]) -> dict[str, Any]:
    server = report.get("server_output_json")
    if not isinstance(server, dict):
        raise ParseError("iperf3: no JSON from the server; start it with -J and the client with --get-server-output")
    if server.get("error"):
        raise ParseError(f"iperf3 server: {server['error']}")
    mine, others = report["start"], server["start"]
    for key in SAME:
        if others["test_start"][key] != mine["test_start"][key]:
            raise ParseError(
                f"iperf3: {key} is {mine['test_start'][key]} by its client, {others['test_start'][key]} by its server"
            )
    if others["cookie"] != mine["cookie"]:
        raise ParseError("iperf3: the server's report is of another test")
    if len(others["connected"]) != len(mine["connected"]):
        raise ParseError(
            f"iperf3: the server saw {len(others['connected'])} of {number_of(len(mine['connected']), 'connection')}"
        )
    return server


def receiver_rates(server: dict[str, Any]) -> list[float]:
    """Gbit/s of every whole measured interval; ParseError where intervals overlap, stand twice or are missing.

    Two kinds of interval are left out, for they are artefacts of the tool: the first after the omitted time, whose
    bytes reach back into it in releases up to 3.12, and the last, which ends when the test does.
    """
    sums = [i["sum"] for i in server["intervals"]]
    if any(not isinstance(i["omitted"], bool) for i in sums):
        raise ParseError("iperf3: an interval does not say whether it was omitted")
    measured = [i for i in sums if not i["omitted"]]
    omitted = [i for i in sums if i["omitted"]]
    for part in (omitted, measured):  # the clock begins anew after the omitted time
        ends = [real(i["end"], "iperf3: end of an interval") for i in part]
        if any(later <= end for end, later in pairwise(ends)):
            raise ParseError("iperf3: an interval ends no later than the one before")
    if not measured or measured != sums[-len(measured) :]:
        raise ParseError("iperf3: the server measured no interval, or omitted one in between")
    usual = statistics.median(number(i["seconds"], "iperf3: interval seconds") for i in measured)
    until = real(omitted[-1]["end"], "iperf3: end of an interval") if omitted else 0.0
    reaches_back = (
        until < server["start"]["test_start"]["omit"] - 0.001
    )  # the end of the omitted time is in no interval
    rates = []
    before = 0.0
    for position, interval in enumerate(measured):
        rate = _rate(interval, f"iperf3: interval {position + 1}")
        start, end = (real(interval[key], f"iperf3: {key} of an interval") for key in ("start", "end"))
        if abs(start - before) > NEAR * usual and not (position == 0 and reaches_back):
            raise ParseError(
                f"iperf3: interval {position + 1} starts at {start:.3f} s, the one before ends at {before:.3f}"
            )
        before = end
        if position == 0 and reaches_back and interval["seconds"] - (end - start) > NEAR * usual:
            continue
        if abs(interval["seconds"] - (end - start)) > NEAR * usual:
            raise ParseError(
                f"iperf3: interval {position + 1} has {interval['seconds']:.3f} s from {start:.3f} to {end:.3f}"
            )
        if position == len(measured) - 1 and interval["seconds"] < 0.8 * usual:
            continue
        rates.append(rate / 1e9)
    whole = real(server["end"]["sum_received"]["seconds"], "iperf3: seconds at the receiver")
    if abs(before - whole) > 0.5 * usual:
        raise ParseError(f"iperf3: the last interval ends at {before:.3f} s, the receiver's at {whole:.3f} s")
    return rates


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`tcp_bandwidth_gbps`, one sample per interval at the receiver; the sender's `retransmits` (count), where told."""
    report: dict[str, Any] = json_report(doc["stdout"], "iperf3's report", iperf3_report)
    if report.get("error"):
        raise ParseError(f"iperf3: {report['error']}")
    test = report["start"]["test_start"]
    if test["protocol"] != "TCP":
        raise ParseError(f"iperf3 used {test['protocol']} instead of TCP")
    if test["reverse"]:
        raise ParseError("iperf3 ran in the reverse direction")
    if test.get("bidir"):  # of 3.7 and later
        raise ParseError("iperf3 ran in both directions at once")
    expect(params, "seconds", test["duration"], "iperf3 duration")
    expect(params, "omit_s", test["omit"], "iperf3 omitted seconds")
    expect(params, "streams", test["num_streams"], "iperf3 streams")
    if len(report["start"]["connected"]) != test["num_streams"]:
        raise ParseError(
            f"iperf3 opened {len(report['start']['connected'])} of {number_of(test['num_streams'], 'connection')}"
        )
    server = _server(report)
    received = server["end"]["sum_received"]
    seconds = number(received["seconds"], "iperf3: seconds at the receiver")
    if seconds < 0.9 * number(test["duration"], "iperf3: duration"):
        raise ParseError(f"iperf3 measured {seconds:.2f} s instead of {test['duration']} s")
    if seconds > LATE * test["duration"] + 1:
        raise ParseError(f"iperf3 took {seconds:.2f} s instead of {test['duration']} s")
    whole = number(_rate(received, "iperf3: the receiver"), "iperf3: rate at the receiver") / 1e9
    rates = receiver_rates(server)
    interval = params.get("interval_s")
    if isinstance(interval, (int, float)) and len(rates) < FEWEST * test["duration"] / interval:
        raise ParseError(f"iperf3: {len(rates)} intervals, {test['duration'] / interval:.0f} planned")
    if not rates or abs(statistics.fmean(rates) - whole) > CONSISTENT * whole:
        raise ParseError(f"iperf3: the intervals do not add up to the receiver's {whole:.4g} Gbit/s")
    samples = [Sample(metric="tcp_bandwidth_gbps", value=rate, unit="Gbit/s") for rate in rates]
    again = (report["end"].get("sum_sent") or {}).get("retransmits")
    if again is not None:  # iperf3 leaves it out where TCP_INFO has none: MPTCP, other systems
        samples.append(Sample(metric="retransmits", value=count(again, "iperf3: retransmits"), unit="count"))
    facts = plain(doc["facts"])
    facts["receiver_mean_gbps"] = whole
    facts["sender_congestion_control"] = str(report["end"].get("sender_tcp_congestion", ""))
    return samples, facts
