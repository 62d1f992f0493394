"""Every bound that follows from a fabric profile, derived in one place and explained step by step for the report.

line rate -> ceiling (encoding, MTU and header bytes) -> tolerance -> floor.
"""

from __future__ import annotations

from collections.abc import Iterator

from validation.base.counting import number_of
from validation.model import Bound, LabLink
from validation.rules.fabric import Fabric, RdmaLatency
from validation.rules.wire import ETHERNET_FRAME_BYTES, TCP_HEADERS_BYTES, tcp_payload_share

CEILING_SLACK = 1.005
"""Readings up to 0.5 % above the ceiling are taken as clock and interval-edge error."""


SMALLEST_FRAME_BYTES = 84  # on the wire: 64, with preamble and SFD 8 and inter-packet gap 12 (IEEE 802.3)
PCI_US = 0.1
"""Less than any card needs to be told of an operation and to write a byte to memory over PCI Express (about 0.5 us in
practice). Project default."""

LAB_FRACTION = 0.95
"""Share of a lab link's payload ceiling that a healthy link must reach: truth is met within 3 %, a sick link is far
below. Project default."""

BOTH_WAYS = "rdma_bandwidth_both_ways"
"""Key of the bound on RDMA bandwidth of both directions added up; all other keys are those of the profile."""


def bounds_of(fabric: Fabric, lab_link: LabLink | None = None) -> dict[str, Bound]:
    """The bounds of a fabric by the profile's key; a key without a figure is left out.

    On a lab link the rate and the round trip that the lab declares take the place of the fabric's for TCP, and
    `Bound.nominal` states what the fabric itself would demand. RDMA of a lab is not judged by a bound.
    """
    found: dict[str, Bound] = {"mtu": _equal("path_mtu_bytes", "MTU", fabric.name, fabric.mtu, fabric.sources.mtu)}
    if fabric.rdma_mtu is not None and fabric.sources.rdma_mtu is not None:
        words = fabric.sources.rdma_mtu
        found["rdma_mtu"] = _equal("rdma_mtu_bytes", "RDMA MTU", fabric.name, fabric.rdma_mtu, words)
    found |= dict(_tcp_bandwidth(fabric, lab_link))
    found |= dict(_tcp_rtt(fabric, lab_link))
    found |= dict(_rdma_bandwidth(fabric))
    found |= dict(_rdma_latency(fabric))
    ratio = fabric.remote_ratio
    if ratio is not None:
        line = f"remote over native training throughput: at least {ratio.minimum:g} ({ratio.source})"
        found["remote_ratio"] = Bound(
            metric="remote_ratio", unit="ratio", floor=ratio.minimum, derivation=(line,), source=ratio.source
        )
    return found


def _equal(metric: str, what: str, name: str, value: int, source: str) -> Bound:
    line = f"{what} of {name}: {number_of(value, 'byte')} ({source})"
    return Bound(metric=metric, unit="bytes", equal=str(value), derivation=(line,), source=source)


def _line_rate(fabric: Fabric) -> str:
    return f"line rate of {fabric.name}: {fabric.line_rate_gbps:g} Gbit/s ({fabric.sources.line_rate_gbps})"


def _tcp_lines(rate_words: str, rate_gbps: float, mtu: int) -> tuple[float, tuple[str, ...]]:
    ceiling = rate_gbps * tcp_payload_share(mtu)
    return ceiling, (
        rate_words,
        f"ceiling = {rate_gbps:g} x ({mtu}-{TCP_HEADERS_BYTES})/({mtu}+{ETHERNET_FRAME_BYTES}) = {ceiling:.4g} Gbit/s: "
        f"a packet of {number_of(mtu, 'byte')} carries {mtu - TCP_HEADERS_BYTES} of payload (IPv4 20, TCP "
        "20, timestamps 12) and "
        f"takes {mtu + ETHERNET_FRAME_BYTES} on the wire (preamble 8, header 14, FCS 4, gap 12)",
        f"a median above {ceiling:.4g} x {CEILING_SLACK} = {ceiling * CEILING_SLACK:.4g} Gbit/s is a fault of the "
        "measurement (0.5 % slack for clocks and interval edges)",
    )


def _tcp_bandwidth(fabric: Fabric, lab_link: LabLink | None) -> Iterator[tuple[str, Bound]]:
    """Floor and ceiling of TCP payload between two ports. InfiniBand: its TCP is IPoIB, for which no figure exists."""
    expectation = fabric.tcp_bandwidth
    if expectation is None or fabric.link_layer != "Ethernet":
        return
    share, nominal, source = expectation.fraction, None, expectation.source
    ceiling, lines = _tcp_lines(_line_rate(fabric), fabric.data_gbps, fabric.mtu)
    floor = share * fabric.line_rate_gbps
    if lab_link is None:
        lines += (
            f"tolerance: {share:g} of the line rate ({source})",
            f"floor = {share:g} x {fabric.line_rate_gbps:g} = {floor:.4g} Gbit/s",
        )
    else:
        nominal = (
            f"{fabric.name} on hardware: floor {floor:.4g} Gbit/s, ceiling {ceiling:.4g} Gbit/s "
            f"({share:g} of {fabric.line_rate_gbps:g} Gbit/s at MTU {fabric.mtu})"
        )
        rate = lab_link.rate_gbps
        words = (
            f"rehearsal: the lab's link is shaped to {rate:g} Gbit/s on the wire, in place of the "
            f"{fabric.line_rate_gbps:g} Gbit/s of {fabric.name}"
        )
        ceiling, lines = _tcp_lines(words, rate, fabric.mtu)
        floor = LAB_FRACTION * ceiling
        lines += (
            f"tolerance: {LAB_FRACTION:g} of the ceiling (project default: a healthy lab link is within 3 % of it)",
            f"floor = {LAB_FRACTION:g} x {ceiling:.4g} = {floor:.4g} Gbit/s",
        )
        source = "declared rate of the lab link; tolerance is a project default"
    yield (
        "tcp_bandwidth",
        Bound(
            metric="tcp_bandwidth_gbps",
            unit="Gbit/s",
            floor=floor,
            ceiling=ceiling,
            derivation=lines,
            source=source,
            nominal=nominal,
        ),
    )


def _tcp_rtt(fabric: Fabric, lab_link: LabLink | None) -> Iterator[tuple[str, Bound]]:
    """Upper limit of the TCP round trip in microseconds; in a rehearsal what the lab declares for its link."""
    limit = fabric.tcp_rtt
    if limit is None:
        return
    most, source, nominal = limit.maximum_us, limit.source, None
    line = f"round trip of {fabric.name}: at most {most:g} us ({source})"
    if lab_link is not None:
        nominal = f"{fabric.name} on hardware: at most {most:g} us ({source})"
        most, source = lab_link.rtt_max_us, "declared by the lab"
        line = (
            f"rehearsal: the lab declares a round trip of at most {most:g} us for its links, which "
            "run through this host's scheduler and a software switch"
        )
    yield (
        "tcp_rtt",
        Bound(metric="tcp_rtt_us", unit="us", maximum=most, derivation=(line,), source=source, nominal=nominal),
    )


def _rdma_bandwidth(fabric: Fabric) -> Iterator[tuple[str, Bound]]:
    """Floor and ceiling of RDMA payload between two ports, in one direction and of both added up."""
    expectation, ceiling = fabric.rdma_bandwidth, fabric.rdma_ceiling_gbps
    if expectation is None or ceiling is None:
        return
    share, mtu, wire = expectation.fraction, fabric.rdma_mtu, fabric.rdma_wire_bytes
    for key, ways, times in (("rdma_bandwidth", 1, ""), (BOTH_WAYS, 2, " x 2 (both directions added up)")):
        floor = ways * share * fabric.line_rate_gbps
        lines = (
            _line_rate(fabric),
            f"ceiling = {fabric.data_gbps:g} x {mtu}/({mtu}+{wire}){times} = {ways * ceiling:.4g} Gbit/s: a packet of "
            f"{number_of(mtu, 'byte')} takes {wire} more on the wire",
            f"tolerance: {share:g} of the line rate ({expectation.source})",
            f"floor = {share:g} x {fabric.line_rate_gbps:g}{times} = {floor:.4g} Gbit/s",
        )
        yield (
            key,
            Bound(
                metric="rdma_bandwidth_gbps",
                unit="Gbit/s",
                floor=floor,
                ceiling=ways * ceiling,
                derivation=lines,
                source=expectation.source,
            ),
        )


def _rdma_latency(fabric: Fabric) -> Iterator[tuple[str, Bound]]:
    """Upper limits in us: of writes and sends half of the round trip, of reads the whole, as perftest has it.

    Where nothing is published the limit is a share of the TCP round trip's; the judge of RDMA adds what this fabric's
    own pairs say.
    """
    for key, words in (("rdma_write_latency", "write and send"), ("rdma_read_latency", "read")):
        limit: RdmaLatency | None = getattr(fabric, key)
        most = fabric.rdma_latency_us(key)
        if limit is None or most is None:
            continue
        lines: tuple[str, ...] = (f"{words}: at most {most:g} us ({limit.source})",)
        if limit.of_tcp_rtt is not None and fabric.tcp_rtt is not None:
            lines = (
                f"no latency is published for {fabric.name}: the limit is derived ({limit.source})",
                f"{words}: {limit.of_tcp_rtt:g} x the {fabric.tcp_rtt.maximum_us:g} us that the round trip over TCP "
                f"may take ({fabric.tcp_rtt.source}) = at most {most:g} us",
            )
        least, how = rdma_least_us(fabric, key)
        lines += (f"a reading below {how} = {least:.3g} us is a fault of the measurement",)
        yield (
            key,
            Bound(metric="rdma_latency_us", unit="us", maximum=most, derivation=lines, source=limit.source),
        )


def rdma_least_us(fabric: Fabric, key: str) -> tuple[float, str]:
    """The shortest RDMA latency in microseconds that can be, and how it follows: PCI Express and the packets' time on
    the wire, one for a write or send, request and answer for a read.
    """
    packets = 2 if key == "rdma_read_latency" else 1
    size = max(SMALLEST_FRAME_BYTES if fabric.link_layer == "Ethernet" else 0, fabric.rdma_wire_bytes)
    least = PCI_US + packets * size * 8 / (fabric.data_gbps * 1000)
    of = "a packet" if packets == 1 else "2 packets"
    return least, f"{PCI_US:g} us of PCI Express and {of} of {number_of(size, 'byte')} at {fabric.data_gbps:g} Gbit/s"
