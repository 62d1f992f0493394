"""ibv_rc_pingpong (rdma-core) and ucx_perftest (UCX 1.12 to 1.20)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from validation.model import Sample, Scalar
from validation.parsers import rdma
from validation.parsers.common import Parsed, ParseError, number
from validation.probes import ProbeDoc
from validation.probes.rdma import packets

MIB_GBPS = 8 * 1024 * 1024 / 1e9
"""ucx_perftest's MB/s are MiB/s (it divides by 1024 x 1024)."""

UCT_TRANSPORT = "transport layer"
UCP = "protocol layer"


def first_light(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`rdma_pingpong_us`, microseconds of one exchange there and back, and `rdma_retransmits`.

    The planned RDMA MTU must be that of both ports, and the data that arrived that which was sent.
    """
    text, facts = doc["stdout"], doc["facts"]
    peer = rdma.peer_of(facts)
    rdma.check_ends(facts, params)
    moved = re.search(r"^(\d+) bytes in ([\d.]+) seconds = [\d.]+ Mbit/sec$", text, re.MULTILINE)
    took = re.search(r"^(\d+) iters in [\d.]+ seconds = ([\d.]+) usec/iter\n", text, re.MULTILINE)
    if moved is None or took is None:
        raise ParseError("ibv_rc_pingpong: its output is cut before the figures")
    rounds, size = int(took[1]), params.get("size_bytes")
    planned = params.get("iterations")
    if isinstance(planned, int) and rounds != planned:
        raise ParseError(f"ibv_rc_pingpong made {rounds} exchanges, {planned} planned")
    if isinstance(size, int) and int(moved[1]) != 2 * size * rounds:
        raise ParseError(f"ibv_rc_pingpong moved {moved[1]} bytes, {2 * size * rounds} planned")
    for end, who in ((facts, "this end"), (peer, "the serving end")):
        if params.get("mtu") and end["active_mtu"] != params["mtu"]:
            raise ParseError(f"the RDMA MTU of {who} is {end['active_mtu']}, {params['mtu']} wanted")
    _same_gid(text, facts, peer)
    each = int(moved[1]) // 2 // rounds
    mtu = min(int(facts["active_mtu"]), int(peer["active_mtu"]))
    claim = (packets(each, mtu) * rounds, each * rounds)
    rdma.prove(facts, claim, claim)
    value = number(float(took[2]), "ibv_rc_pingpong: time of an exchange")
    samples = [Sample(metric="rdma_pingpong_us", value=value, unit="us"), rdma.retransmits_sample(facts)]
    return samples, rdma.both(facts, tool_transport="RC", exchanges=rounds)


def _same_gid(text: str, facts: Mapping[str, Any], peer: Mapping[str, Any]) -> None:
    """The GIDs that the tool printed are those of the two ports."""
    for side, end in (("local", facts), ("remote", peer)):
        said = re.search(rf"^  {side} address: .*\bGID (\S+)$", text, re.MULTILINE)
        if said is None:
            raise ParseError(f"ibv_rc_pingpong: no {side} GID in its output")
        if end["link_layer"] != "InfiniBand" and _plain_gid(said[1]) != _plain_gid(str(end["gid"])):
            raise ParseError(f"ibv_rc_pingpong used the {side} GID {said[1]}, the port's is {end['gid']}")


def _plain_gid(text: str) -> int:
    import ipaddress

    try:
        return int(ipaddress.IPv6Address(text))
    except ValueError:
        raise ParseError(f"{text!r} is no GID") from None


def ucx(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`ucx_latency_us` of a latency test or `ucx_bandwidth_gbps` of a bandwidth test, and `rdma_retransmits`.

    UCX's latency is that of one message, half an exchange.
    """
    text, facts, test = doc["stdout"], doc["facts"], str(params.get("ucx_test", "put_lat"))
    head = str(rdma.peer_of(facts).get("stdout", ""))  # the server prints what is measured, the client the figures
    rdma.check_ends(facts, params)
    level = UCT_TRANSPORT if test.startswith("put_") else UCP
    if re.search(rf"^\| API: +{level} +\|$", head, re.MULTILINE) is None:
        raise ParseError(f"ucx_perftest did not measure the {level}")
    said = re.search(r"^\| Message size: +(\d+) +\|$", head, re.MULTILINE)
    size = params.get("size_bytes")
    if said is None or (isinstance(size, int) and int(said[1]) != size):
        raise ParseError(f"ucx_perftest used messages of {said[1] if said else 'no stated'} bytes, {size} planned")
    final = re.search(r"^Final: +(.+)\n", text, re.MULTILINE)
    if final is None:
        raise ParseError("ucx_perftest: its output is cut before the final figures")
    figures = [float(word) for word in _numbers(final[1])]
    if len(figures) != 8:
        raise ParseError(f"ucx_perftest: {len(figures)} final figures, 8 expected")
    messages = int(figures[0])
    planned = params.get("iterations")
    if isinstance(planned, int) and messages < planned:
        raise ParseError(f"ucx_perftest sent {messages} messages, {planned} planned")
    # packets alone: a message may be a part of a packet; a latency test has both ends send
    claim = (messages, int(said[1]) * messages)
    rdma.prove(facts, claim, claim if test.endswith("_lat") else (0, 0))
    if test.endswith("_lat"):
        sample = Sample(metric="ucx_latency_us", value=number(figures[1], "ucx_perftest: latency"), unit="us")
    else:
        sample = Sample(
            metric="ucx_bandwidth_gbps", value=number(figures[5], "ucx_perftest: rate") * MIB_GBPS, unit="Gbit/s"
        )
    transport = "rc_verbs" if test.startswith("put_") else "UCX's choice among rc, ud"
    return [sample, rdma.retransmits_sample(facts)], rdma.both(facts, tool_transport=transport, messages=messages)


def _numbers(text: str) -> list[str]:
    words = text.replace(",", "").split()
    for word in words:
        if not re.fullmatch(r"\d+(\.\d+)?", word):
            raise ParseError(f"ucx_perftest: {word!r} is no number")
    return words
