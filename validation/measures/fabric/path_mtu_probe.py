"""Path MTU between two fabric addresses: the largest IP packet that arrives without being fragmented.

One size above the expected one is tried too: a path that carries more than the fabric's MTU is misconfigured as well,
and a size that passes only because something fragments it would go unnoticed otherwise.

`stdout`: ping's output, one command after the other, each headed by "$ ping ...". `facts`: path_mtu_bytes (int, found
by probing; IP packet size), expected_bytes, source, destination.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from validation.base.counting import number_of
from validation.probes import ProbeDoc
from validation.probes.carrier import of_address
from validation.probes.tool import Ran, document, group, run_tool

IP_HEADER_BYTES = {4: 20, 6: 40}  # RFC 791, no options; RFC 8200, no extension headers
ICMP_HEADER_BYTES = 8  # of an echo request, RFC 792 and RFC 4443
MAX_IP_PACKET_BYTES = 65535
ANSWER_TIMEOUT_S = "0.5"  # a fabric answers in well under a millisecond
CONTROL_BYTES = {4: 576, 6: 1280}  # every host must accept this (RFC 791), every link carry it (RFC 8200)
TOO_LONG = r"message too long, mtu[=:] ?(\d+)"  # of IPv4 `mtu=1500`, of IPv6 `mtu: 1500`; iputils 20121221 to 20250605


def family(address: str) -> int:
    """4 or 6."""
    return 6 if ":" in address else 4


def headers_bytes(address: str) -> int:
    """What an IP packet to this address has beside ping's data."""
    return IP_HEADER_BYTES[family(address)] + ICMP_HEADER_BYTES


@dataclass
class Asked:
    """What is asked of this probe."""

    source: str  # this node's fabric address
    destination: str  # the other node's fabric address
    mtu: int  # that the fabric should have, bytes


class _Pinger:
    """Sends packets of a given size and keeps everything that ping said."""

    def __init__(self, source: str, destination: str) -> None:
        self.command = ["ping", "-n", "-M", "do", "-I", source, "-c", "3", "-W", ANSWER_TIMEOUT_S]
        self.command += ["-i", "0.05" if os.geteuid() == 0 else "0.2"]  # older pings allow only root to hurry
        self.destination = destination
        self.said: list[str] = []
        self.local_mtu = MAX_IP_PACKET_BYTES

    def run(self, size: int) -> Ran:
        command = [*self.command, "-s", str(size - headers_bytes(self.destination)), self.destination]
        ran = run_tool(command)
        self.said.append("$ " + " ".join(command) + "\n" + ran.stdout + ran.stderr)
        local = group(TOO_LONG, ran.stdout + ran.stderr)
        if local:
            self.local_mtu = min(self.local_mtu, int(local))
        return ran

    def passes(self, size: int) -> bool:
        """True when at least one of three packets of `size` bytes was answered: loss is not what is looked for."""
        return size <= self.local_mtu and self.run(size).returncode == 0

    def largest(self, good: int, bad: int) -> int:
        """Bisect: the largest size that passes, `good` being known to pass and `bad` not to."""
        while bad - good > 1:
            middle = (good + bad) // 2
            if middle > self.local_mtu >= good:
                middle = self.local_mtu
            if middle > good and self.passes(middle):
                good = middle
            else:
                bad = max(middle, good + 1)
        return good


def _find(pinger: _Pinger, expected: int) -> tuple[int | None, Ran, str | None]:
    first = pinger.run(expected)
    if first.returncode in (126, 127):
        return None, first, None
    if first.returncode == 0:
        if not pinger.passes(expected + 1):
            return expected, first, None
        pinger.run(MAX_IP_PACKET_BYTES)  # tells the interface's own MTU, an upper end for the search
        return pinger.largest(expected + 1, min(pinger.local_mtu, MAX_IP_PACKET_BYTES) + 1), first, None
    control = min(CONTROL_BYTES[family(pinger.destination)], expected)
    if control == expected or not pinger.passes(control):
        why = f"{pinger.destination} does not answer ping, not even with {number_of(control, 'byte')}"
        return None, first, why
    return pinger.largest(control, min(expected, pinger.local_mtu + 1)), first, None


def probe(args: Asked) -> ProbeDoc:
    """Find the path MTU from `source` to `destination`, bytes of IP packet."""
    pinger = _Pinger(args.source, args.destination)

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        pinger.said.append("# ping -V\n" + run_tool(["ping", "-V"]).stdout)
        found, ran, error = _find(pinger, args.mtu)
        facts: dict[str, Any] = {
            "source": args.source,
            "destination": args.destination,
            "expected_bytes": args.mtu,
            **of_address(args.source),
        }
        if found is not None:
            facts["path_mtu_bytes"] = found
        # A size that did not pass is a finding, not a failure of ping, so it does not end the probe with an error.
        code = ran.returncode if ran.returncode in (126, 127) else 0
        return Ran(ran.command, code, "\n".join(pinger.said), ran.stderr if code else ""), facts, error

    return document("path-mtu", "ping", measure, lambda ran: group(r"from iputils[- ](\S+)", ran.stdout))
