"""Facts of a node's RDMA ports (kind rdma-ports)."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from validation.kinds.parsing import Parsed, ParseError, as_facts
from validation.kinds.record import Kind, on_node
from validation.model import Job, Measurement, Sample, Scalar, Topology
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, once
from validation.probes import ProbeDoc

RDMA_MTUS = (256, 512, 1024, 2048, 4096)  # enum ibv_mtu


class Gid(Model):
    """An entry of a port's GID table. InfiniBand has no interface."""

    index: Count
    type: Name  # RoCE v2, IB/RoCE v1
    gid: IPv6Address
    interface: str = ""


class Pause(Model):
    """Global pause of a port."""

    rx: bool
    tx: bool

    def __str__(self) -> str:
        """`rx off tx off`."""
        return f"rx {'on' if self.rx else 'off'} tx {'on' if self.tx else 'off'}"


class Policy(Model):
    """RoCE settings. None: not known of a port, not asked for by a policy. DSCP -> priority; PFC priorities."""

    roce_mode: str | None = None
    tos: Count | None = None
    trust: str | None = None
    dscp_prio: dict[str, Count] | None = None
    pfc: tuple[Count, ...] | None = None


class Qos(Policy):
    """RoCE settings as a port has them; `unread` says why something is not known."""

    pause: Pause | None
    ecn: bool | None
    traffic_class: Count | None
    unread: tuple[str, ...]


class Memlock(Model):
    """Bytes that a new session of an ordinary user may lock, -1 = unlimited; None with the reason in `unread`."""

    bytes: Annotated[int, Field(ge=-1, le=2**64)] | None
    user: str
    unread: str


class RdmaPort(Model):
    """An interface and the RDMA port that carries it; `device` "" where there is none, and then nothing but its state.

    `counters` are those of the port, its driver and its pause frames, by name.
    """

    interface: Name
    present: bool
    operstate: str
    mtu: Count | None = None  # bytes, of the interface
    device: str
    port: Count | None = None
    state: str = ""
    physical_state: str = ""
    link_layer: str = ""
    rate_gbps: Annotated[float, Field(gt=0, le=10_000)] | None = None  # 12 lanes of XDR are 2400
    rate_words: str = ""
    gids: tuple[Gid, ...] = ()
    counters: dict[str, Count] = Field(default={})
    firmware: str = ""
    board: str = ""
    driver: str = ""
    active_mtu_bytes: int | None = None
    active_mtu_unread: str = ""
    qos: Qos | None = None

    @model_validator(mode="after")
    def _of_a_device(self) -> RdmaPort:
        lacking = [key for key in ("port", "state", "physical_state", "link_layer") if getattr(self, key) in (None, "")]
        if self.device and lacking:
            raise ValueError(f"{self.interface}: {', '.join(lacking)} of {self.device} not given")
        if self.active_mtu_bytes not in (None, *RDMA_MTUS):
            raise ValueError(f"{self.interface}: {self.active_mtu_bytes} is not an RDMA MTU")
        return self


class RdmaPortsFacts(Facts):
    """The RDMA ports of a node. A second, brief reading has neither `memlock` nor `policy`.

    `policy`: what provisioning wants, None where it never spoke of RoCE.
    """

    type: Literal["rdma-ports"] = "rdma-ports"
    ports: Annotated[tuple[RdmaPort, ...], Field(min_length=1)]
    memlock: Memlock | None = None
    policy: Policy | None = None

    @field_validator("ports")
    @classmethod
    def _ports_once(cls, ports: tuple[RdmaPort, ...]) -> tuple[RdmaPort, ...]:
        return once(ports, "interface")

    def port(self, interface: str) -> RdmaPort | None:
        """The port of that name; None where it was not looked at."""
        return next((port for port in self.ports if port.interface == interface), None)


# --- RDMA ports of a node --------------------------------------------------------------------------------------------


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """Samples of each port's rate and active MTU, and the facts."""
    raw = doc["facts"]
    if not params.get("brief") and not {"memlock", "policy"} <= set(raw):
        raise ParseError("rdma-ports: memlock or policy is missing")
    facts = as_facts(RdmaPortsFacts, raw, "rdma-ports")
    samples = []
    for port in facts.ports:
        if port.rate_gbps is not None:
            samples.append(Sample(metric=f"{port.interface}.rate_gbps", value=port.rate_gbps, unit="Gbit/s"))
        if port.active_mtu_bytes is not None:
            mtu = float(port.active_mtu_bytes)
            samples.append(Sample(metric=f"{port.interface}.active_mtu_bytes", value=mtu, unit="bytes"))
    return samples, facts


def on_rdma_ports(m: Measurement, topology: Topology) -> Job:
    """A job of the measurement's own probe, with the node's ports that do not carry TCP only."""
    return on_node(m, interfaces=[port.interface for port in topology.node(m.nodes[0]).ports if port.rdma])


KINDS = (
    Kind(
        name="rdma-ports",
        title="RDMA ports: state, RoCE settings, counters",
        measures="Reads state, RoCE settings and counters of each RDMA port, before the load and after it.",
        tool="sysfs, configfs, dcb, ethtool and ibv_devinfo",
        more="explanation/measuring/nodes.md",
        job=on_rdma_ports,
        parse=parse,
        repeat_by="probe",
        once=True,
    ),
)
