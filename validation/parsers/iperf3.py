"""iperf3 3.9 to 3.17, TCP: the receiver's rate per interval, from the client's JSON with `--get-server-output`.

The client's own intervals count what entered its socket buffer; what arrived is in `server_output_json`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from validation.model import Sample, Scalar
from validation.parsers.common import Parsed, ParseError, count, expect, json_object, number, plain
from validation.probes import ProbeDoc

CONSISTENT = 0.25
"""How far the mean of the intervals may be from the rate over the whole test: they count the same bytes. Ours."""


def _server(report: dict[str, Any]) -> dict[str, Any]:
    server = report.get("server_output_json")
    if not isinstance(server, dict):
        raise ParseError("iperf3: no JSON from the server; start it with -J and the client with --get-server-output")
    if server.get("error"):
        raise ParseError(f"iperf3 server: {server['error']}")
    return server


def receiver_rates(server: dict[str, Any]) -> list[float]:
    """Gbit/s of every whole measured interval.

    Two kinds of interval are left out, for they are artefacts of the tool: the first after the omitted time, whose
    bytes reach back into it in releases up to 3.12, and the last, which ends when the test does.
    """
    measured = [i["sum"] for i in server["intervals"] if not i["sum"]["omitted"]]
    if not measured:
        raise ParseError("iperf3: the server measured no interval")
    usual = statistics.median(number(i["seconds"], "interval seconds") for i in measured)
    rates = []
    for position, interval in enumerate(measured):
        seconds, span = float(interval["seconds"]), float(interval["end"]) - float(interval["start"])
        if position == 0 and abs(seconds - span) > 0.1 * usual:
            continue
        if position == len(measured) - 1 and seconds < 0.8 * usual:
            continue
        rate = float(interval["bits_per_second"]) / 1e9
        if not math.isfinite(rate) or rate < 0:
            raise ParseError(f"iperf3: {rate} Gbit/s is no rate")
        rates.append(rate)
    return rates


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`tcp_bandwidth_gbps`, one sample per interval at the receiver, and `retransmits` (count, of the sender)."""
    report: dict[str, Any] = json_object(doc["stdout"], "iperf3's report")
    if report.get("error"):
        raise ParseError(f"iperf3: {report['error']}")
    test = report["start"]["test_start"]
    if test["protocol"] != "TCP":
        raise ParseError(f"iperf3 used {test['protocol']} instead of TCP")
    if test["reverse"]:
        raise ParseError("iperf3 ran in the reverse direction")
    expect(params, "seconds", test["duration"], "iperf3 duration")
    expect(params, "omit_s", test["omit"], "iperf3 omitted seconds")
    expect(params, "streams", test["num_streams"], "iperf3 streams")
    if len(report["start"]["connected"]) != test["num_streams"]:
        raise ParseError(f"iperf3 opened {len(report['start']['connected'])} of {test['num_streams']} connections")
    server = _server(report)
    received = server["end"]["sum_received"]
    seconds = number(received["seconds"], "iperf3: seconds at the receiver")
    if seconds < 0.9 * number(test["duration"], "iperf3: duration"):
        raise ParseError(f"iperf3 measured {seconds:.2f} s instead of {test['duration']} s")
    whole = number(received["bits_per_second"], "iperf3: rate at the receiver") / 1e9
    rates = receiver_rates(server)
    interval = params.get("interval_s")
    if isinstance(interval, (int, float)) and len(rates) < 0.8 * test["duration"] / interval:
        raise ParseError(f"iperf3: {len(rates)} intervals, {test['duration'] / interval:.0f} planned")
    if not rates or abs(statistics.fmean(rates) - whole) > CONSISTENT * whole:
        raise ParseError(f"iperf3: the intervals do not add up to the receiver's {whole:.4g} Gbit/s")
    retransmits = count(report["end"]["sum_sent"]["retransmits"], "iperf3: retransmits")
    samples = [Sample(metric="tcp_bandwidth_gbps", value=rate, unit="Gbit/s") for rate in rates]
    samples.append(Sample(metric="retransmits", value=retransmits, unit="count"))
    facts = plain(doc["facts"])
    facts["receiver_mean_gbps"] = whole
    facts["sender_congestion_control"] = str(report["end"].get("sender_tcp_congestion", ""))
    return samples, facts
