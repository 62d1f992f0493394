"""Fabric profiles: what a network under test is, and the bounds that follow from it.

A profile is data (`fabrics/*.yml`); every figure in it names its source. Bounds are derived here, never typed:
line rate -> ceiling (encoding, MTU and header bytes) -> tolerance -> floor, and each step is kept in words for the
report.
"""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from validation.load import ConfigError, Source, load_yaml, read_source
from validation.model import Bound, LabLink, Model

CEILING_SLACK = 1.005
"""Readings up to 0.5 % above the ceiling are taken as clock and interval-edge error."""

TCP_HEADERS_BYTES = 52  # IPv4 20 (RFC 791) + TCP 20 (RFC 9293) + timestamps option 12 (RFC 7323)
ETHERNET_FRAME_BYTES = 38  # preamble and SFD 8 + header 14 + FCS 4 + inter-packet gap 12 (IEEE 802.3)
ROCE_WIRE_BYTES = 82  # Ethernet 38 + IPv4 20 + UDP 8 + BTH 12 + ICRC 4 (InfiniBand specification, annex A17)
INFINIBAND_WIRE_BYTES = 26  # LRH 8 + BTH 12 + ICRC 4 + VCRC 2 (InfiniBand specification, volume 1)

LAB_FRACTION = 0.95
"""Share of a lab link's payload ceiling that a healthy link must reach: truth is met within 3 %, a sick link is far
below. Ours."""


class Expectation(Model):
    """A share (0..1) of a quantity that must be reached. `provisional`: our judgement, not a published figure."""

    fraction: float = Field(gt=0, le=1)
    source: str = Field(min_length=1)
    provisional: bool = False


class LatencyBound(Model):
    """Upper limit of a latency, in microseconds."""

    maximum_us: float = Field(gt=0)
    source: str = Field(min_length=1)
    provisional: bool = False


class RemoteRatio(Model):
    """Remote over native training throughput that must be reached over this fabric."""

    minimum: float = Field(gt=0, le=1)
    source: str = Field(min_length=1)
    provisional: bool = False


class Sources(Model):
    """Where each plain figure of a profile comes from."""

    line_rate_gbps: str = Field(min_length=1)
    mtu: str = Field(min_length=1)
    transport: str = Field(min_length=1)
    lossless: str = Field(min_length=1)
    rdma_mtu: str | None = None


class Fabric(Model):
    """A link profile.

    `line_rate_gbps` is the rate a port is sold as, `data_rate_gbps` what line encoding leaves of it (equal unless
    given), `mtu` the IP MTU of the port in bytes, `rdma_mtu` the RDMA path MTU in bytes, `tcp_streams` how many
    parallel TCP streams a bandwidth measurement uses at this rate. A latency or fraction that is None has no
    published figure: its criterion then comes out as not-measured (no-bound), never as a pass.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str
    generation: Literal["reference", "current"]
    link_layer: Literal["Ethernet", "InfiniBand"]
    transport: Literal["tcp", "roce", "ib", "pvrdma"]
    line_rate_gbps: float = Field(gt=0)
    data_rate_gbps: float | None = Field(default=None, gt=0)
    mtu: int = Field(ge=576, le=65520)
    rdma_mtu: Literal[1024, 2048, 4096] | None = None
    lossless: bool
    needs_rdma: bool
    hypervisors: tuple[str, ...] = ()
    tcp_streams: int = Field(default=1, ge=1, le=64)
    tcp_bandwidth: Expectation | None = None
    rdma_bandwidth: Expectation | None = None
    tcp_rtt: LatencyBound | None = None
    rdma_write_latency: LatencyBound | None = None
    rdma_read_latency: LatencyBound | None = None
    remote_ratio: RemoteRatio | None = None
    sources: Sources
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Fabric:
        if self.data_rate_gbps is not None and self.data_rate_gbps > self.line_rate_gbps:
            raise ValueError("data_rate_gbps is above line_rate_gbps; encoding can only cost")
        if self.needs_rdma and (self.rdma_mtu is None or self.sources.rdma_mtu is None):
            raise ValueError("a fabric that needs RDMA states rdma_mtu and sources.rdma_mtu")
        if self.needs_rdma == (self.transport == "tcp"):
            raise ValueError("needs_rdma must be false for transport tcp and true for any other")
        for expectation, ceiling in (
            (self.tcp_bandwidth, self.tcp_ceiling_gbps if self.link_layer == "Ethernet" else None),
            (self.rdma_bandwidth, self.rdma_ceiling_gbps),
        ):
            if expectation is None or ceiling is None:
                continue
            floor = expectation.fraction * self.line_rate_gbps
            if floor > ceiling:
                raise ValueError(
                    f"fraction {expectation.fraction:g} puts the floor at {floor:.4g} Gbit/s, above the ceiling of "
                    f"{ceiling:.4g} Gbit/s that the line allows; lower the fraction or correct rate and MTU"
                )
        return self

    @property
    def data_gbps(self) -> float:
        """Gbit/s that line encoding leaves."""
        return self.line_rate_gbps if self.data_rate_gbps is None else self.data_rate_gbps

    @property
    def tcp_ceiling_gbps(self) -> float:
        """TCP payload in Gbit/s that the line carries at most. Ethernet framing; see `tcp_payload_share`."""
        return self.data_gbps * tcp_payload_share(self.mtu)

    @property
    def rdma_ceiling_gbps(self) -> float | None:
        """RDMA payload in Gbit/s that the line carries at most; None where the fabric has no RDMA."""
        if self.rdma_mtu is None:
            return None
        wire = INFINIBAND_WIRE_BYTES if self.link_layer == "InfiniBand" else ROCE_WIRE_BYTES
        return self.data_gbps * self.rdma_mtu / (self.rdma_mtu + wire)


def tcp_payload_share(mtu: int) -> float:
    """Share of an Ethernet wire's bits that are TCP payload at this IP MTU: (MTU-52)/(MTU+38)."""
    return (mtu - TCP_HEADERS_BYTES) / (mtu + ETHERNET_FRAME_BYTES)


def _tcp_lines(rate_words: str, rate_gbps: float, mtu: int) -> tuple[float, tuple[str, ...]]:
    ceiling = rate_gbps * tcp_payload_share(mtu)
    return ceiling, (
        rate_words,
        f"ceiling = {rate_gbps:g} x ({mtu}-{TCP_HEADERS_BYTES})/({mtu}+{ETHERNET_FRAME_BYTES}) = {ceiling:.4g} Gbit/s: "
        f"a packet of {mtu} bytes carries {mtu - TCP_HEADERS_BYTES} of payload (IPv4 20, TCP 20, timestamps 12) and "
        f"takes {mtu + ETHERNET_FRAME_BYTES} on the wire (preamble 8, header 14, FCS 4, gap 12)",
        f"a median above {ceiling:.4g} x {CEILING_SLACK} = {ceiling * CEILING_SLACK:.4g} Gbit/s is a fault of the "
        "measurement (0.5 % slack for clocks and interval edges)",
    )


def tcp_bandwidth_bound(fabric: Fabric, lab_link: LabLink | None) -> Bound:
    """Floor and ceiling of TCP payload bandwidth between two ports, with the derivation in words.

    On a lab link the rate that the lab declares takes the place of the fabric's, and `Bound.nominal` states what the
    fabric itself would demand. A profile without a figure (InfiniBand: its TCP is IPoIB, for which nothing is
    published) gives a bound without floor. ConfigError where the floor lies above the ceiling.
    """
    expectation = fabric.tcp_bandwidth
    if expectation is None or fabric.link_layer != "Ethernet":
        return Bound(
            metric="tcp_bandwidth_gbps",
            unit="Gbit/s",
            derivation=(f"{fabric.name}: no figure for TCP over {fabric.link_layer} is known",),
            source="none",
        )
    ceiling, lines = _tcp_lines(
        f"line rate of {fabric.name}: {fabric.line_rate_gbps:g} Gbit/s ({fabric.sources.line_rate_gbps})",
        fabric.data_gbps,
        fabric.mtu,
    )
    floor = expectation.fraction * fabric.line_rate_gbps
    lines += (
        f"tolerance: {expectation.fraction:g} of the line rate ({expectation.source})",
        f"floor = {expectation.fraction:g} x {fabric.line_rate_gbps:g} = {floor:.4g} Gbit/s",
    )
    nominal = None
    source = expectation.source
    if lab_link is not None:
        nominal = (
            f"{fabric.name} on hardware: floor {floor:.4g} Gbit/s, ceiling {ceiling:.4g} Gbit/s "
            f"({expectation.fraction:g} of {fabric.line_rate_gbps:g} Gbit/s at MTU {fabric.mtu})"
        )
        rate = lab_link.rate_gbps
        ceiling, lines = _tcp_lines(
            f"rehearsal: the lab's link is shaped to {rate:g} Gbit/s on the wire, in place of the "
            f"{fabric.line_rate_gbps:g} Gbit/s of {fabric.name}",
            rate,
            fabric.mtu,
        )
        floor = LAB_FRACTION * ceiling
        lines += (
            f"tolerance: {LAB_FRACTION:g} of the ceiling (ours: a healthy lab link is within 3 % of it)",
            f"floor = {LAB_FRACTION:g} x {ceiling:.4g} = {floor:.4g} Gbit/s",
        )
        source = "declared rate of the lab link; tolerance ours"
    if floor > ceiling:
        raise ConfigError(
            f"fabric {fabric.name}: floor {floor:.4g} Gbit/s is above the ceiling {ceiling:.4g} Gbit/s; "
            "correct the profile's fraction, rate or MTU"
        )
    return Bound(
        metric="tcp_bandwidth_gbps",
        unit="Gbit/s",
        floor=floor,
        ceiling=ceiling,
        derivation=lines,
        source=source,
        nominal=nominal,
    )


def rdma_bandwidth_bound(fabric: Fabric, both_ways: bool) -> Bound | None:
    """Floor and ceiling of RDMA payload bandwidth between two ports, both directions added up where `both_ways`.

    None where the profile has no figure. Virtual and emulated ports are not judged by it.
    """
    expectation, ceiling = fabric.rdma_bandwidth, fabric.rdma_ceiling_gbps
    if expectation is None or ceiling is None or fabric.rdma_mtu is None:
        return None
    ways = 2 if both_ways else 1
    wire = INFINIBAND_WIRE_BYTES if fabric.link_layer == "InfiniBand" else ROCE_WIRE_BYTES
    floor = ways * expectation.fraction * fabric.line_rate_gbps
    times = " x 2 (both directions added up)" if both_ways else ""
    return Bound(
        metric="rdma_bandwidth_gbps",
        unit="Gbit/s",
        floor=floor,
        ceiling=ways * ceiling,
        derivation=(
            f"line rate of {fabric.name}: {fabric.line_rate_gbps:g} Gbit/s ({fabric.sources.line_rate_gbps})",
            f"ceiling = {fabric.data_gbps:g} x {fabric.rdma_mtu}/({fabric.rdma_mtu}+{wire}){times} = "
            f"{ways * ceiling:.4g} Gbit/s: a packet of {fabric.rdma_mtu} bytes takes {wire} more on the wire",
            f"tolerance: {expectation.fraction:g} of the line rate ({expectation.source})",
            f"floor = {expectation.fraction:g} x {fabric.line_rate_gbps:g}{times} = {floor:.4g} Gbit/s",
        ),
        source=expectation.source,
    )


def rdma_latency_bound(fabric: Fabric, read: bool) -> Bound | None:
    """Upper limit of an RDMA latency in microseconds; None where none is published for this fabric.

    Of writes and sends half of the round trip, of reads the whole, as perftest reports them.
    """
    limit = fabric.rdma_read_latency if read else fabric.rdma_write_latency
    if limit is None:
        return None
    return Bound(
        metric="rdma_latency_us",
        unit="us",
        maximum=limit.maximum_us,
        derivation=(f"{'read' if read else 'write and send'}: at most {limit.maximum_us:g} us ({limit.source})",),
        source=limit.source,
    )


def tcp_rtt_bound(fabric: Fabric, lab_link: LabLink | None) -> Bound:
    """Upper limit of the TCP round trip in microseconds; in a rehearsal what the lab declares for its link."""
    limit = fabric.tcp_rtt
    if limit is None:
        return Bound(
            metric="tcp_rtt_us", unit="us", derivation=(f"{fabric.name}: no latency figure is known",), source="none"
        )
    if lab_link is None:
        return Bound(
            metric="tcp_rtt_us",
            unit="us",
            maximum=limit.maximum_us,
            derivation=(f"round trip of {fabric.name}: at most {limit.maximum_us:g} us ({limit.source})",),
            source=limit.source,
        )
    return Bound(
        metric="tcp_rtt_us",
        unit="us",
        maximum=lab_link.rtt_max_us,
        derivation=(
            f"rehearsal: the lab declares a round trip of at most {lab_link.rtt_max_us:g} us for its links, which "
            "run through this host's scheduler and a software switch",
        ),
        source="declared by the lab",
        nominal=f"{fabric.name} on hardware: at most {limit.maximum_us:g} us ({limit.source})",
    )


def _folder() -> Path:
    # the package is installed as plain files (wheel or editable), never zipped: probes and reports need paths too
    return Path(str(resources.files("validation") / "fabrics"))


def fabric_names() -> list[str]:
    """Names of the packaged profiles: by generation, Ethernet before InfiniBand, slow before fast."""
    profiles = [load_yaml(path, Fabric) for path in sorted(_folder().glob("*.yml"))]
    profiles.sort(key=lambda f: (f.generation == "current", f.link_layer, f.line_rate_gbps, f.transport, f.name))
    return [f.name for f in profiles]


def fabric_text(name: str) -> str:
    """The packaged profile as it stands in its file, to be copied into a run directory."""
    return _locate(name).read_text(encoding="utf-8")


def _locate(name_or_path: str) -> Path:
    if "/" in name_or_path or name_or_path.endswith((".yml", ".yaml")):
        return Path(name_or_path)
    path = _folder() / f"{name_or_path}.yml"
    if path.is_file():
        return path
    known = sorted(p.stem for p in _folder().glob("*.yml"))
    near = difflib.get_close_matches(name_or_path.lower(), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    raise ConfigError(f"unknown fabric {name_or_path!r}; {hint} See `toolkit fabrics`")


def load_fabric(source: str | Source) -> Fabric:
    """A packaged profile by name, or one from a file by path, or as it was read.

    ConfigError names the nearest known name or the line.
    """
    source = source if isinstance(source, Source) else read_source(_locate(source))
    fabric, path = load_yaml(source, Fabric), source.path
    if path.parent == _folder() and fabric.name != path.stem:
        raise ConfigError(f"{path}:1: name: {fabric.name!r} does not fit the file's name; make them equal")
    return fabric
