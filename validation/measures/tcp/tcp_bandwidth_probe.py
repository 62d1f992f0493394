"""TCP bandwidth from this node to another one, with iperf3, as the receiver counts it.

`stdout`: the client's JSON of iperf3 with --get-server-output, so that `server_output_json` carries the receiver's
intervals. `facts`: source, destination, server_tool_version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from validation.base.counting import number_of
from validation.probes import ProbeDoc, json_text
from validation.probes.carrier import of_address
from validation.probes.tool import Ran, document, group, run_tool

SHORTEST = 0.9  # share of its time that a test must have run: on a busy node the omitted time ends late


@dataclass
class Asked:
    """What is asked of this probe."""

    source: str  # this node's fabric address
    destination: str  # the serving node's fabric address
    port: int
    seconds: int  # measured time
    omit_s: int = 0  # time before it that does not count (TCP slow start)
    interval_s: float = 1.0  # one sample per interval
    streams: int = 1  # parallel TCP connections


def command_for(args: Asked) -> list[str]:
    """The client's command line."""
    command = ["iperf3", "-c", args.destination, "-p", str(args.port), "-B", args.source]
    command += ["-t", str(args.seconds), "-O", str(args.omit_s), "-i", f"{args.interval_s:g}"]
    return [*command, "-P", str(args.streams), "-J", "--get-server-output", "--connect-timeout", "5000"]


def iperf3_report(text: str, constant: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """What iperf3 told, as -J prints it at the end or --json-stream (3.17 and later) event by event. ValueError where
    it is none, is cut, or stands there twice and not the same."""
    found = json_text.reports(text, constant)
    if not all({"event", "data"} <= set(one) for one in found):
        return json_text.the_one(found)
    whole: dict[str, Any] = {"intervals": []}
    for event, data in ((str(one["event"]), one["data"]) for one in found):
        if event == "interval":
            whole["intervals"].append(data)
        elif event in whole:
            raise ValueError(f"event {event} is in it twice")
        else:
            whole[event] = data
    return whole


def wrong(args: Asked, stdout: str) -> str | None:
    """What iperf3 did other than asked, in words; None when it did everything. It may exit with 0 all the same."""
    try:
        report = iperf3_report(stdout)
        if report.get("error"):
            return f"iperf3: {report['error']}"
        test = report["start"]["test_start"]
        connections = report["start"]["connected"]
        sent, received = report["end"]["sum_sent"], report["end"]["sum_received"]
        server = report["server_output_json"]
        checks = [
            (test["protocol"] == "TCP", f"used {test['protocol']} instead of TCP"),
            (test["reverse"] == 0, "ran in the reverse direction"),
            (
                test["num_streams"] == len(connections) == args.streams,
                f"opened {number_of(len(connections), 'connection')}",
            ),
            (all(c["local_host"] == args.source for c in connections), "did not use the source address"),
            (all(c["remote_host"] == args.destination for c in connections), "did not reach the destination address"),
            (test["duration"] == args.seconds and test["omit"] == args.omit_s, "ran for another time than asked"),
            (sent["seconds"] >= SHORTEST * args.seconds, f"stopped after {sent['seconds']:.1f} s"),
            (received["bytes"] > 0, "moved no data"),
            (bool(server["intervals"]), "got no report from the server"),
        ]
    except (ValueError, KeyError, TypeError) as error:
        return f"iperf3's report cannot be used: {type(error).__name__}: {error}"
    faults = [text for good, text in checks if not good]
    return "iperf3 " + ", ".join(faults) if faults else None


def probe(args: Asked) -> ProbeDoc:
    """Send over TCP for `seconds` and report iperf3's JSON."""
    command = command_for(args)

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        ran = run_tool(command)
        facts = {"source": args.source, "destination": args.destination, **of_address(args.source)}
        return ran, facts, wrong(args, ran.stdout)

    return document("tcp-bandwidth", "iperf3", measure, lambda ran: group(r'"version":\s*"iperf ([^"]+)"', ran.stdout))
