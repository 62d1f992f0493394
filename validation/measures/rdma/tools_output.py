"""What the RDMA parsers share: that the planned device, GID and RoCE version were used, proved by both ends' counters.

A result without that proof is refused. A tool that silently went another way (TCP, loopback, another port) prints a
rate like any other; the port's own counters are what it cannot talk its way around.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from validation.kinds.parsing import MOST, Facts, ParseError, count, plain
from validation.model import Sample, Scalar

SHARE = 0.95
"""Share of the claimed packets or bytes that both devices must have counted: drivers answer from a cache that may be
some milliseconds old. Project default."""

# Counters that mean that something was sent again or came out of order, of rxe, mlx5, mlx4, bnxt_re and irdma.
RETRANSMITS = (
    "out_of_seq_request",
    "rcvd_seq_err",
    "duplicate_request",
    "completer_retry_err",
    "retry_exceeded_err",
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "to_retransmits",
    "seq_err_naks_rcvd",
    "RetransSegs",
    "tcpRetransSegs",
)
DROP = ("peer", "json")


def peer_of(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Facts of the serving end; ParseError where there are none."""
    peer = facts.get("peer")
    if not isinstance(peer, Mapping) or "device" not in peer:
        raise ParseError("the serving end reported nothing of its device, so that nothing proves what was used")
    return peer


def check_ends(facts: Mapping[str, Any], params: Mapping[str, Scalar]) -> None:
    """ParseError where an end used another GID type or link layer than the fabric has."""
    for end, who in ((facts, "this end"), (peer_of(facts), "the serving end")):
        transport = params.get("transport")
        if transport in ("roce", "pvrdma"):
            if end["roce_version"] != "RoCE v2":
                raise ParseError(f"{who} used a GID of type {end['roce_version'] or 'unknown'} instead of RoCE v2")
            if end["link_layer"] != "Ethernet":
                raise ParseError(f"{who} used a port of link layer {end['link_layer']} instead of Ethernet")
        elif transport == "ib" and end["link_layer"] != "InfiniBand":
            raise ParseError(f"{who} used a port of link layer {end['link_layer']} instead of InfiniBand")


def prove(facts: Mapping[str, Any], sent: tuple[int, int], answered: tuple[int, int]) -> None:
    """ParseError where the counters do not bear out what the tool claims.

    `sent` and `answered` are (packets, payload bytes) that went from the client to the server, and back, at least.
    """
    peer = peer_of(facts)
    for claim, a, b, who in (
        (sent, facts, peer, ("client", "server")),
        (answered, peer, facts, ("server", "client")),
    ):
        _carried(claim, a, "sent", f"the {who[0]}'s device sent")
        _carried(claim, b, "received", f"the {who[1]}'s device received")


def _carried(claim: tuple[int, int], end: Mapping[str, Any], way: str, who: str) -> None:
    known = False
    for unit, claimed in (("packets", claim[0]), ("bytes", claim[1])):
        found = end.get(f"{way}_{unit}")
        if isinstance(found, bool) or not isinstance(found, int):
            continue
        known = True
        if found < math.floor(SHARE * claimed):
            raise ParseError(
                f"{who} {found} {unit} by its own counters, {claimed} are claimed: it did not go over {end['device']}"
            )
    if not known:
        raise ParseError(f"{end['device']} has no counters of what it {way}, so that nothing proves what was used")


def retransmits(facts: Mapping[str, Any]) -> int:
    """How often something was sent again or arrived out of order, by the counters of both ends."""
    total = 0
    for end in (facts, peer_of(facts)):
        if not isinstance(end["counters"], dict):
            raise ParseError("an end does not say which of its counters moved")
        for name, value in end["counters"].items():
            grown = count(value, f"counter {name}")
            if grown > MOST:
                raise ParseError(f"counter {name}: {grown:g} is more than a counter can hold")
            if name.rpartition("/")[2] in RETRANSMITS:
                total += int(grown)
    return total


def retransmits_sample(facts: Mapping[str, Any]) -> Sample:
    """`rdma_retransmits`, a count over both ends."""
    return Sample(metric="rdma_retransmits", value=float(retransmits(facts)), unit="count")


def both(facts: Mapping[str, Any], **more: Scalar) -> Facts:
    """Facts of a result: this end's, and the serving end's with `peer_` before their names."""
    peer = plain(peer_of(facts), drop=("bind", "port", "stdout", *DROP))
    return {**plain(facts, drop=DROP), **{f"peer_{key}": value for key, value in peer.items()}, **more}
