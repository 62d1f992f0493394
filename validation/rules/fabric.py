"""Fabric profiles: what a network under test is. The bounds that follow from it are derived in `bounds.py`.

A profile is data (`fabrics/*.yml`); every figure in it names its source. Figures that hold for a whole transport stand
once, in `fabrics/_defaults.yml`.
"""

from __future__ import annotations

import contextlib
import difflib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from validation.base.yaml_text import parse_yaml
from validation.model import Model, Origin
from validation.model.load import ConfigError, Source, line_of, load_yaml, read_source
from validation.rules.reference import packaged
from validation.rules.wire import INFINIBAND_WIRE_BYTES, ROCE_WIRE_BYTES, tcp_payload_share

_DEFAULTS = "_defaults.yml"
_NONE = "_none.yml"


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


class RdmaLatency(Model):
    """Upper limit of an RDMA latency. Either `maximum_us`, a published figure, or where none is published `of_tcp_rtt`,
    a share of the fabric's limit on the TCP round trip, and `times_median`: how many times the median of the fabric's
    pairs one of them may take.
    """

    maximum_us: float | None = Field(default=None, gt=0)
    of_tcp_rtt: float | None = Field(default=None, gt=0, le=1)
    times_median: float | None = Field(default=None, gt=1)
    source: str = Field(min_length=1)
    provisional: bool = False

    @model_validator(mode="after")
    def _one_limit(self) -> RdmaLatency:
        if (self.maximum_us is None) == (self.of_tcp_rtt is None):
            raise ValueError("either maximum_us (a published figure) or of_tcp_rtt (a share of the round trip's limit)")
        return self


class RemoteRatio(Model):
    """Remote over native training throughput that must be reached over this fabric."""

    minimum: float = Field(gt=0, le=1)
    source: str = Field(min_length=1)
    provisional: bool = False


FigureKey = Literal[
    "tcp_bandwidth", "rdma_bandwidth", "tcp_rtt", "rdma_write_latency", "rdma_read_latency", "remote_ratio"
]
RDMA_LATENCIES: tuple[FigureKey, ...] = ("rdma_write_latency", "rdma_read_latency")

FIGURES: dict[FigureKey, str] = {
    "tcp_bandwidth": "fraction",
    "rdma_bandwidth": "fraction",
    "tcp_rtt": "maximum_us",
    **dict.fromkeys(RDMA_LATENCIES, "maximum_us"),
    "remote_ratio": "minimum",
}
"""Keys of a profile under which a figure stands -> the name of its number."""


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
    parallel TCP streams a bandwidth measurement uses at this rate. `claims`: of which claim a figure is
    (reference.py), in place of the figure itself, which a run's copy has below. A latency or fraction that
    is None has no published figure: its criterion then comes out as not-measured (no-bound), never as a pass.
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
    rdma_write_latency: RdmaLatency | None = None
    rdma_read_latency: RdmaLatency | None = None
    remote_ratio: RemoteRatio | None = None
    claims: dict[FigureKey, str] = Field(default={})
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
        for key in RDMA_LATENCIES:
            limit = getattr(self, key)
            if limit is not None and limit.of_tcp_rtt is not None and self.tcp_rtt is None:
                raise ValueError(f"{key}: of_tcp_rtt is a share of tcp_rtt, which has no figure; give {key} maximum_us")
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
    def rdma_wire_bytes(self) -> int:
        """What an RDMA packet takes on the wire beside its payload."""
        return INFINIBAND_WIRE_BYTES if self.link_layer == "InfiniBand" else ROCE_WIRE_BYTES

    @property
    def rdma_ceiling_gbps(self) -> float | None:
        """RDMA payload in Gbit/s that the line carries at most; None where the fabric has no RDMA."""
        if self.rdma_mtu is None:
            return None
        return self.data_gbps * self.rdma_mtu / (self.rdma_mtu + self.rdma_wire_bytes)

    def figures(self) -> dict[str, float]:
        """The one number of each figure that this profile has, by key: shares, microseconds, and the MTU in bytes."""
        stated = {key: getattr(self, key) for key in FIGURES if key not in RDMA_LATENCIES}
        found: dict[str, float] = {k: getattr(v, FIGURES[k]) for k, v in stated.items() if v is not None}
        limits: dict[str, float | None] = {key: self.rdma_latency_us(key) for key in RDMA_LATENCIES}
        return {"mtu": self.mtu, **found, **{k: v for k, v in limits.items() if v is not None}}

    def rdma_latency_us(self, key: str) -> float | None:
        """The upper limit of an RDMA latency (`rdma_write_latency`, `rdma_read_latency`) in microseconds."""
        limit: RdmaLatency | None = getattr(self, key)
        if limit is None or limit.maximum_us is not None or self.tcp_rtt is None:
            return None if limit is None else limit.maximum_us
        return (limit.of_tcp_rtt or 1.0) * self.tcp_rtt.maximum_us

    def beside(self, key: str) -> str:
        """What holds beside the number of a figure, in words; "" where nothing does."""
        limit = getattr(self, key, None)
        times = limit.times_median if isinstance(limit, RdmaLatency) else None
        return f", each at most {times:g} x the median of the fabric's pairs" if times is not None else ""


class _Default(Model):
    """A figure of `_defaults.yml`; of a `claim` that was made on another fabric, `because` says why it is taken."""

    key: FigureKey
    transports: tuple[str, ...]
    from_gbps: float = 0
    figure: dict[str, float | str | bool] = Field(default={})
    claim: str | None = None
    because: str = ""

    @model_validator(mode="after")
    def _one_figure(self) -> _Default:
        if bool(self.figure) == (self.claim is not None) or bool(self.claim) != bool(self.because):
            raise ValueError("either figure, or claim with because: why another fabric's figure is taken")
        return self

    def stated(self) -> dict[str, float | str | bool]:
        """The figure as a profile states it. Another fabric's is derived, never published of this one."""
        if self.claim is None:
            return self.figure
        claim = packaged().claim(self.claim)
        source = f"{self.because} ({packaged().source(claim)})"
        return {FIGURES[self.key]: claim.limit, "source": source, "provisional": True}


class _Defaults(Model):
    defaults: tuple[_Default, ...]


@dataclass(frozen=True)
class LoadedFabric:
    """A profile with the text that it was made of, which is the one that a run keeps, and where that came from."""

    fabric: Fabric
    source: Source
    origin: Origin

    @property
    def text(self) -> str:
        """The profile's file, with the figures of its transport below it."""
        return self.source.text


def _folder() -> Path:
    # the package is installed as plain files (wheel or editable), never zipped: probes and reports need paths too
    return Path(str(resources.files("validation.rules") / "fabrics"))


def _packaged() -> list[Path]:
    return sorted(path for path in _folder().glob("*.yml") if not path.name.startswith("_"))


def fabric_names() -> list[str]:
    """Names of the packaged profiles: by generation, Ethernet before InfiniBand, slow before fast."""
    profiles = [load_fabric(path.stem) for path in _packaged()]
    profiles.sort(key=lambda f: (f.generation == "current", f.link_layer, f.line_rate_gbps, f.transport, f.name))
    return [f.name for f in profiles]


def _locate(name_or_path: str) -> Path:
    if "/" in name_or_path or name_or_path.endswith((".yml", ".yaml")):
        return Path(name_or_path)
    known = {path.stem: path for path in _packaged()}
    if name_or_path in known:
        return known[name_or_path]
    near = difflib.get_close_matches(name_or_path.lower(), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    raise ConfigError(f"unknown fabric {name_or_path!r}; {hint} See `toolkit fabrics`")


@cache
def _defaults() -> tuple[_Default, ...]:
    return load_yaml(_folder() / _DEFAULTS, _Defaults).defaults


def _of_claims(source: Source, stated: dict[str, Any]) -> dict[str, Any]:
    """The figures that are those of claims, by the profile's key."""
    named = stated.get("claims")
    found = {}
    for key, id_ in named.items() if isinstance(named, dict) else ():
        if key in FIGURES and key not in stated:
            try:
                claim = packaged().claim(str(id_))
                found[key] = {FIGURES[key]: claim.limit, "source": packaged().source(claim)}
            except ConfigError as fault:
                raise ConfigError(f"{source.path}:{line_of(source, 'claims', key)}: claims.{key}: {fault}") from None
    return found


def _with_defaults(source: Source) -> Source:
    """The profile's text, and below it the figures of its claims and of its transport that it does not state itself."""
    with contextlib.suppress(yaml.YAMLError):  # which the reader of the profile tells, with its line
        stated = parse_yaml(source.text)
        if isinstance(stated, dict):
            rate = stated.get("line_rate_gbps")
            claimed = _of_claims(source, stated)
            stated = {**stated, **claimed}
            more = claimed | {
                default.key: default.stated()
                for default in _defaults()
                if default.key not in stated
                and stated.get("transport") in default.transports
                and isinstance(rate, (int, float))
                and rate >= default.from_gbps
            }
            if more:
                text = source.text if source.text.endswith("\n") else f"{source.text}\n"
                below = yaml.safe_dump(more, sort_keys=False, width=1000)
                return Source(
                    source.path,
                    f"{text}# figures of its claims, and those that hold for every profile of this transport\n{below}",
                )
    return source


def read_fabric(name_or_path: str) -> LoadedFabric:
    """A packaged profile by name, or one from a file by path; read once, with the defaults of its transport.

    ConfigError names the nearest known name or the line.
    """
    path = _locate(name_or_path)
    source = _with_defaults(read_source(path))
    fabric = load_yaml(source, Fabric)
    packaged = path.parent == _folder()
    if packaged and fabric.name != path.stem:
        raise ConfigError(f"{path}:1: name: {fabric.name!r} does not fit the file's name; make them equal")
    return LoadedFabric(fabric, source, "packaged" if packaged else "site")


def no_fabric() -> LoadedFabric:
    """The profile of a run in which no network is under test: of one machine by itself."""
    source = read_source(_folder() / _NONE)
    return LoadedFabric(load_yaml(source, Fabric), source, "site")


def load_fabric(source: str | Source) -> Fabric:
    """A packaged profile by name, one from a file by path, or the copy in a run as it was read, which is complete."""
    return load_yaml(source, Fabric) if isinstance(source, Source) else read_fabric(source).fabric
