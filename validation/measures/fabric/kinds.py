"""What is asked of the switches: many ports that send to one, and all ports of a group that send to all others."""

from __future__ import annotations

from typing import Any

from validation.kinds.record import Kind, port_of
from validation.measures.fabric import switch_load
from validation.model import Call, Endpoint, Job, Measurement, Seat, Topology


def _seat(m: Measurement, topology: Topology, at: Endpoint, others: list[Endpoint], serves: bool) -> Seat:
    """One end and those that it meets. The port of a pair is that of its sender's place among all ends."""
    first, ends = m.params["port"], m.endpoints
    assert isinstance(first, int)
    ports = [first + ends.index(other if serves else at) for other in others]
    peers = [port_of(topology, other).address for other in others]
    asked: dict[str, Any] = {key: m.params[key] for key in ("seconds", "streams", "transport")}
    asked |= {"interface": at.port, "address": port_of(topology, at).address, "peers": peers, "ports": ports}
    call = Call(probe="serve", params={"tool": m.kind, "asked": asked}) if serves else Call(probe=m.kind, params=asked)
    return Seat(node=at.node, call=call)


def _job(m: Measurement, topology: Topology, receivers: tuple[Endpoint, ...]) -> Job:
    def others(end: Endpoint, among: tuple[Endpoint, ...]) -> list[Endpoint]:
        return [other for other in among if other != end]

    senders = [end for end in m.endpoints if others(end, receivers)]  # one that receives alone has nobody to send to
    sending = tuple(_seat(m, topology, end, others(end, receivers), False) for end in senders)
    serving = tuple(_seat(m, topology, end, others(end, m.endpoints), True) for end in receivers)
    return Job(node=sending[0].node, probe=sending[0].call, serving=serving, sending=sending)


def _incast(m: Measurement, topology: Topology) -> Job:
    """The first of the ends receives."""
    return _job(m, topology, m.endpoints[:1])


def _all_to_all(m: Measurement, topology: Topology) -> Job:
    return _job(m, topology, m.endpoints)


KINDS = (
    Kind(
        name="incast",
        title="Incast: several ports send to one",
        measures="Lets up to eight ports send to one port at the same time.",
        tool="ib_write_bw where all ports have RDMA, else iperf3",
        more="explanation/measuring/switches.md",
        job=_incast,
        parse=switch_load.parse,
        headline="incast_gbps",
        repeat_by="probe",
    ),
    Kind(
        name="all-to-all",
        title="All to all: every port sends to every other",
        measures="Lets every port of a set send to every other port of it at the same time.",
        tool="ib_write_bw where all ports have RDMA, else iperf3",
        more="explanation/measuring/switches.md",
        job=_all_to_all,
        parse=switch_load.parse,
        headline="all_to_all_port_gbps",
        repeat_by="probe",
    ),
)
