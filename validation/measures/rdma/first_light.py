"""ibv_rc_pingpong (rdma-core) and ucx_perftest (UCX 1.12 to 1.20)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, number, once, real
from validation.measures.rdma import tools_output
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc
from validation.probes.rdma import packets

MIB_GBPS = 8 * 1024 * 1024 / 1e9
"""ucx_perftest's MB/s are MiB/s (it divides by 1024 x 1024)."""

UCT_TRANSPORT = "transport layer"
UCP = "protocol layer"
TESTS = {
    "put_lat": "put latency",
    "put_bw": "put bandwidth",
    "tag_lat": "tag match latency",
    "tag_bw": "tag match bandwidth",
}
"""What ucx_perftest calls its tests in the head (UCX, src/tools/perf/perftest.c)."""
AGREEMENT = 0.01
"""By what share figures that are the same in other units may differ. Project default."""


def first_light(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`rdma_pingpong_us`, microseconds of one exchange there and back, and `rdma_retransmits`.

    The planned RDMA MTU must be that of both ports, and the data that arrived that which was sent.
    """
    text, facts = doc["stdout"], doc["facts"]
    peer = tools_output.peer_of(facts)
    tools_output.check_ends(facts, params)
    moved = once(r"^(\d+) bytes in ([\d.]+) seconds = [\d.]+ Mbit/sec$", text, "ibv_rc_pingpong: line of bytes")
    took = once(r"^(\d+) iters in ([\d.]+) seconds = ([\d.]+) usec/iter\n", text, "ibv_rc_pingpong: line of exchanges")
    rounds, size = int(took[1]), params.get("size_bytes")
    planned = params.get("iterations")
    if isinstance(planned, int) and rounds != planned:
        raise ParseError(f"ibv_rc_pingpong made {rounds} exchanges, {planned} planned")
    if isinstance(size, int) and int(moved[1]) != 2 * size * rounds:
        raise ParseError(f"ibv_rc_pingpong moved {number_of(moved[1], 'byte')}, {2 * size * rounds} planned")
    for end, who in ((facts, "this end"), (peer, "the serving end")):
        if params.get("mtu") and end["active_mtu"] != params["mtu"]:
            raise ParseError(f"the RDMA MTU of {who} is {end['active_mtu']}, {params['mtu']} wanted")
    _same_gid(text, facts, peer)
    if rounds < 1:
        raise ParseError("ibv_rc_pingpong made no exchange")
    each = int(moved[1]) // 2 // rounds
    mtu = min(int(facts["active_mtu"]), int(peer["active_mtu"]))
    claim = (packets(each, mtu) * rounds, each * rounds)
    tools_output.prove(facts, claim, claim)
    value = number(real(took[3], "ibv_rc_pingpong: time of an exchange"), "ibv_rc_pingpong: time of an exchange")
    for seconds in (moved[2], took[2]):
        # printed to a hundredth of a second, both of the same time
        if (
            abs(real(seconds, "ibv_rc_pingpong: seconds") - value * rounds / 1e6)
            > 0.01 + AGREEMENT * value * rounds / 1e6
        ):
            raise ParseError(f"ibv_rc_pingpong: {rounds} exchanges of {value:g} us do not take {seconds} s")
    samples = [Sample(metric="rdma_pingpong_us", value=value, unit="us"), tools_output.retransmits_sample(facts)]
    return samples, tools_output.both(facts, tool_transport="RC", exchanges=rounds)


def _same_gid(text: str, facts: Mapping[str, Any], peer: Mapping[str, Any]) -> None:
    """The GIDs that the tool printed are those of the two ports."""
    for side, end in (("local", facts), ("remote", peer)):
        said = once(rf"^  {side} address: .*\bGID (\S+)$", text, f"ibv_rc_pingpong: {side} GID")
        if end["link_layer"] != "InfiniBand" and _plain_gid(said[1]) != _plain_gid(str(end["gid"])):
            raise ParseError(f"ibv_rc_pingpong used the {side} GID {said[1]}, the port's is {end['gid']}")


def _plain_gid(text: str) -> int:
    import ipaddress

    try:
        return int(ipaddress.IPv6Address(text))
    except ValueError:
        raise ParseError(f"{text!r} is not a GID") from None


def ucx(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`ucx_latency_us` of a latency test or `ucx_bandwidth_gbps` of a bandwidth test, and `rdma_retransmits`.

    UCX's latency is that of one message, half an exchange.
    """
    text, facts, test = doc["stdout"], doc["facts"], str(params.get("ucx_test", "put_lat"))
    head = str(
        tools_output.peer_of(facts).get("stdout", "")
    )  # the server prints what is measured, the client the figures
    tools_output.check_ends(facts, params)
    level = UCT_TRANSPORT if test.startswith("put_") else UCP
    if once(r"^\| API: +(.*\S) +\|$", head, "ucx_perftest: API")[1] != level:
        raise ParseError(f"ucx_perftest did not measure the {level}")
    ran = once(r"^\| Test: +(.*\S) +\|$", head, "ucx_perftest: name of the test")[1]
    if ran != TESTS[test]:
        raise ParseError(f"ucx_perftest ran {ran} instead of {TESTS[test]}")
    unit = once(r"^\|[ |]+?(\w+) \(usec\) +\|", text, "ucx_perftest: heading of the times")[1]
    if unit != ("latency" if test.endswith("_lat") else "overhead"):
        raise ParseError(f"ucx_perftest: figures of {unit}, which {TESTS[test]} does not measure")
    said = once(r"^\| Message size: +(\d+) +\|$", head, "ucx_perftest: message size")
    size = params.get("size_bytes")
    if isinstance(size, int) and int(said[1]) != size:
        raise ParseError(f"ucx_perftest used messages of {number_of(said[1], 'byte')}, {size} planned")
    final = once(r"^Final: +(.+)\n", text, "ucx_perftest: line of final figures")
    figures = [real(word, "ucx_perftest: a figure") for word in _numbers(final[1])]
    if len(figures) != 8:
        raise ParseError(f"ucx_perftest: {len(figures)} final figures, 8 expected")
    messages = int(figures[0])
    planned = params.get("iterations")
    if messages < 1 or (isinstance(planned, int) and messages < planned):
        raise ParseError(f"ucx_perftest sent {number_of(messages, 'message')}, {planned} planned")
    # packets alone: a message may be a part of a packet; a latency test has both ends send
    claim = (messages, int(said[1]) * messages)
    tools_output.prove(facts, claim, claim if test.endswith("_lat") else (0, 0))
    _tied(figures, int(said[1]), test.endswith("_lat"))
    if test.endswith("_lat"):
        sample = Sample(metric="ucx_latency_us", value=number(figures[1], "ucx_perftest: latency"), unit="us")
    else:
        sample = Sample(
            metric="ucx_bandwidth_gbps", value=number(figures[5], "ucx_perftest: rate") * MIB_GBPS, unit="Gbit/s"
        )
    transport = "rc_verbs" if test.startswith("put_") else "UCX's choice among rc, ud"
    return [sample, tools_output.retransmits_sample(facts)], tools_output.both(
        facts, tool_transport=transport, messages=messages
    )


def _tied(figures: list[float], size: int, latency: bool) -> None:
    """ParseError where the overall figures do not belong together: latency or bandwidth, and message rate."""
    _, _, _, overall, _, bandwidth, _, rate = figures
    if latency:
        if abs(rate * overall - 1e6) > AGREEMENT * 1e6 + overall:
            raise ParseError(f"ucx_perftest: {rate:g} messages/s do not fit a latency of {overall:g} us")
    elif abs(rate * size / 2**20 - bandwidth) > AGREEMENT * bandwidth + 0.01 + size / 2**20:
        raise ParseError(
            f"ucx_perftest: {bandwidth:g} MB/s do not fit {rate:g} messages/s of {number_of(size, 'byte')}"
        )


def _numbers(text: str) -> list[str]:
    words = text.replace(",", "").split()
    for word in words:
        if not re.fullmatch(r"\d+(\.\d+)?", word):
            raise ParseError(f"ucx_perftest: {word!r} is not a number")
    return words
