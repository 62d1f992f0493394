"""Storage beside the network: every node sends to the next one over the fabric, first alone, then while all read.

`beside` of the report: `alone` and `both` (bytes and seconds as the receiver tells them, `late` nodes, `error`), and
`read`: fio's read meanwhile, as every operation of the probe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from validation.measures.tcp.tcp_bandwidth_probe import iperf3_report
from validation.probes.storage_meet import Meeting
from validation.probes.tool import Ran, finish_tool, start_tool

OVER_S = 30.0
SERVER_S = 10.0  # after the sender has ended
MORE_S = 2  # the network goes on for longer than fio, which starts later


def client(address: str, peer: str, port: int, seconds: int) -> list[str]:
    """The sender's command line; one interval, for the whole is of interest."""
    words = ["iperf3", "-c", peer, "-p", str(port), "-B", address, "-t", str(seconds), "-i", str(seconds)]
    return [*words, "-J", "--connect-timeout", "5000"]


def received(ran: Ran) -> dict[str, Any]:
    """What the other end got."""
    try:
        report = iperf3_report(ran.stdout)
        if report.get("error"):
            return {"error": f"iperf3: {report['error']}"}
        got = report["end"]["sum_received"]
        return {"error": "", "bytes": int(got["bytes"]), "seconds": float(got["seconds"])}
    except (ValueError, KeyError, TypeError) as fault:
        return {"error": ran.failure or f"iperf3's report cannot be used: {type(fault).__name__}"}


def sent(
    words: tuple[str, str, int, int], wait: Callable[[], list[str]], meanwhile: Callable[[], dict[str, Any]] | None
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Send to the next node while the one before sends here; what was received, and what was done meanwhile."""
    address, _, port, _ = words
    server_words = ["iperf3", "-s", "-1", "-J", "-B", address, "-p", str(port)]
    try:
        server = start_tool(server_words)
    except OSError as fault:
        wait()
        return {"error": f"iperf3: {fault.strerror}", "late": []}, None
    late = wait()
    sending = client(*words)
    process = start_tool(sending)
    done = meanwhile() if meanwhile is not None else None
    ran = finish_tool(sending, process, words[3] + OVER_S)
    finish_tool(server_words, server, SERVER_S)
    return {**received(ran), "late": late}, done


def measure(
    asked: tuple[str, str, int, int], meeting: Meeting, step: int, wait_s: float, read: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """`asked`: this node's address, the next one's, their port, and the seconds of fio's run with its ramp."""
    address, peer, port, seconds = asked
    first, _ = sent(asked, lambda: meeting.together(step, wait_s), None)
    longer = (address, peer, port, seconds + MORE_S)
    both, done = sent(longer, lambda: meeting.together(step + 1, wait_s), read)
    return {"alone": first, "both": both, "read": done or {"error": "it was not read meanwhile"}}
