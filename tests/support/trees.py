"""Servers as their sysfs shows them: PCI tree, NUMA nodes, network interfaces. Constructed, not recorded.

How GPUs hang on the host is what public documents say of each server, named in SERVERS; what they do not tell
(addresses, which switch an adapter is at) is chosen, and nothing here says anything of a real machine. No tree of sysfs
of one of these servers was found in public; of GB200 there are matrices of nvidia-smi (sgl-project/sglang issue 11208,
NVIDIA/k8s-test-infra issue 371), from which its NUMA nodes and NVLinks are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Files = dict[Path, str]


@dataclass(frozen=True)
class Gpu:
    """A GPU that could do x16, with the lanes and speed that its link is trained to; 0: as the server's."""

    lanes: int = 16
    gt_s: float = 0.0


@dataclass(frozen=True)
class Nic:
    """The card of a fabric port."""

    interface: str
    lanes: int = 16


@dataclass(frozen=True)
class Switch:
    """A PCI Express switch: what is below it, and the lanes of its link to the host."""

    below: tuple[Gpu | Nic | Switch, ...]
    lanes: int = 16


Card = Gpu | Nic | Switch


@dataclass(frozen=True)
class Root:
    """A port of the host, first of the bridge at that bus, and what is plugged into it."""

    bus: int
    numa: int
    below: Card


@dataclass(frozen=True)
class Server:
    """A server. `per_socket`: NUMA nodes of each of its two sockets. `gt_s`: of all its links.

    `nvlinks`: of each GPU to each other one; of GPUs at NVSwitches, those of each GPU to them.
    """

    model: str
    gpu_model: str
    gt_s: float
    roots: tuple[Root, ...]
    per_socket: int = 1
    nvlinks: int = 0
    nvswitches: int = 0
    link_mb_s: int = 25_781  # of an NVLink, as drivers tell it
    doubled: tuple[tuple[int, int], ...] = ()  # pairs of GPUs with one NVLink more
    switch_trays: bool = False  # its NVSwitches stand in trays of their own, and not on its PCI bus
    memory_nodes: tuple[int, ...] = ()  # NUMA nodes without processors: memory of a GPU

    @property
    def gpus(self) -> int:
        """How many GPUs."""
        return sum(_count(root.below) for root in self.roots)


def _count(card: Card) -> int:
    return sum(map(_count, card.below)) if isinstance(card, Switch) else int(isinstance(card, Gpu))


def _four(bus: int, numa: int) -> tuple[Root, ...]:
    """Four GPUs behind one link of x16."""
    return (Root(bus, numa, Switch((Gpu(),) * 4)),)


def _two(bus: int, numa: int) -> tuple[Root, ...]:
    """Two GPUs behind one link of x16."""
    return (Root(bus, numa, Switch((Gpu(),) * 2)),)


def _each(*places: tuple[int, int]) -> tuple[Root, ...]:
    """A GPU in a port of the host's own, at each (bus, NUMA node)."""
    return tuple(Root(bus, numa, Gpu()) for bus, numa in places)


def _hgx(bus: int, numa: int, rail: int) -> Root:
    """Two GPUs and the adapters of two rails at one switch."""
    return Root(bus, numa, Switch((Gpu(), Nic(f"rail{rail}"), Gpu(), Nic(f"rail{rail + 1}"))))


_IB0 = Root(0x5D, 0, Nic("ib0"))
SERVERS: dict[str, Server] = {
    # Dell HPC Innovation Lab, 2017: two links of x16 from two processors; and one from one, to four GPUs with NVLink
    "C4130-G": Server("PowerEdge C4130", "Tesla P100-PCIE-16GB", 8.0,
                      (*_two(0x02, 0), *_two(0x82, 1), Root(0x40, 0, Nic("ib0")))),
    "C4130-K": Server("PowerEdge C4130", "Tesla P100-SXM2-16GB", 8.0, (*_four(0x02, 0), Root(0x40, 0, Nic("ib0"))),
                      nvlinks=1, doubled=((0, 1), (2, 3))),
    # Dell whitepaper, February 2019, table 3 and figure 10; of G it has one link of x16, the C4130 of that letter two
    "C4140-K": Server("PowerEdge C4140", "Tesla V100-SXM2-16GB", 8.0, (*_four(0x16, 0), _IB0), nvlinks=2),
    "C4140-M": Server("PowerEdge C4140", "Tesla V100-SXM2-16GB", 8.0,
                      (*_each((0x16, 0), (0x3A, 0), (0x85, 1), (0xAE, 1)), _IB0), nvlinks=2),
    "C4140-B": Server("PowerEdge C4140", "Tesla V100-PCIE-16GB", 8.0, (*_four(0x16, 0), _IB0)),
    "C4140-G": Server("PowerEdge C4140", "Tesla V100-PCIE-16GB", 8.0,
                      (*_two(0x16, 0), *_two(0x85, 1), _IB0)),
    # Slots of x16 of the processors' own
    "R740": Server("PowerEdge R740", "Tesla P40", 8.0, (*_each((0x17, 0), (0x3A, 0), (0xAE, 1)), _IB0)),
    "R7525": Server("PowerEdge R7525", "NVIDIA A100-PCIE-40GB", 16.0,
                    (*_each((0x20, 1), (0xA0, 5), (0xE0, 6)), Root(0x40, 1, Nic("ib0"))), per_socket=4),
    # Four A100 SXM4, each at a processor's own x16, joined by four NVLinks a pair; a BIOS of four NUMA nodes a socket
    "XE8545": Server("PowerEdge XE8545", "NVIDIA A100-SXM4-80GB", 16.0,
                     (*_each((0x00, 3), (0x40, 1), (0x80, 7), (0xC0, 5)), Root(0x60, 0, Nic("ib0"))), per_socket=4,
                     nvlinks=4),
    # HGX H100: NVIDIA's data sheet has 18 NVLinks a GPU to four NVSwitches
    "XE9680": Server("PowerEdge XE9680", "NVIDIA H100 80GB HBM3", 32.0,
                     (_hgx(0x15, 0, 0), _hgx(0x38, 0, 2), _hgx(0x97, 1, 4), _hgx(0xB7, 1, 6)),
                     nvlinks=18, nvswitches=4, link_mb_s=26_562),
    # HGX H200: the same board by NVIDIA's data sheet
    "XE9680-H200": Server("PowerEdge XE9680", "NVIDIA H200", 32.0,
                          (_hgx(0x15, 0, 0), _hgx(0x38, 0, 2), _hgx(0x97, 1, 4), _hgx(0xB7, 1, 6)),
                          nvlinks=18, nvswitches=4, link_mb_s=26_562),
    # A tray of GB200 NVL72: two processors with two GPUs each, whose memory is in NUMA nodes 2, 10, 18 and 26; NICs
    # are at other ports (in the matrices SYS from all GPUs)
    "XE9712": Server("PowerEdge XE9712", "NVIDIA GB200", 32.0,
                     (*_each((0x08, 0), (0x28, 0), (0x48, 1), (0x68, 1)), Root(0x30, 0, Nic("rail0")),
                      Root(0x70, 1, Nic("rail1"))),
                     nvlinks=18, nvswitches=9, link_mb_s=50_000, switch_trays=True, memory_nodes=(2, 10, 18, 26)),
}  # fmt: skip


@dataclass
class _Writer:
    """Gathers the files and links of a sysfs tree."""

    sysfs: Path
    server: Server
    files: Files = field(default_factory=dict)
    links: Files = field(default_factory=dict)
    acs: Mapping[str, int] = field(default_factory=dict)
    root: bool = True
    config: dict[Path, bytes] = field(default_factory=dict)

    def function(self, folder: Path, lanes: int, gt_s: float = 0.0, **more: str) -> None:
        """A PCI function that could do x16 at the server's speed."""
        speed = f"{gt_s or self.server.gt_s:.1f} GT/s PCIe"
        told = {"current_link_width": str(lanes), "current_link_speed": speed, "max_link_width": "16"}
        told["max_link_speed"] = f"{self.server.gt_s:.1f} GT/s PCIe"
        self.files |= {folder / name: text for name, text in {**told, **more}.items()}
        self.links[self.sysfs / "bus/pci/devices" / folder.name] = str(folder)

    def plug(self, port: Path, numa: int, card: Card, buses: Iterator[int], lanes: int | None = None) -> None:
        """What is plugged into a port, on the next bus."""
        there = {"numa_node": str(numa)}
        lanes = card.lanes if lanes is None else lanes
        self.function(port, lanes, **there, vendor="0x8086", **{"class": "0x060400"})
        self.config[port / "config"] = space(self.acs.get(port.name, 0))[: 4096 if self.root else 64]
        folder = port / f"0000:{next(buses):02x}:00.0"
        if isinstance(card, Switch):
            self.function(folder, lanes, **there, vendor="0x10b5", **{"class": "0x060400"})
            self.config[folder / "config"] = space(None)[: 4096 if self.root else 64]  # an upper port has none
            bus = next(buses)
            for number, each in enumerate(card.below):
                self.plug(folder / f"0000:{bus:02x}:{4 * number:02x}.0", numa, each, buses)
        elif isinstance(card, Gpu):
            self.function(folder, lanes, card.gt_s, **there, vendor="0x10de", **{"class": "0x030200"})
        else:
            self.function(folder, lanes, **there, vendor="0x15b3", **{"class": "0x020000"})
            self.links[self.sysfs / "class/net" / card.interface / "device"] = str(folder)

    def numa(self) -> None:
        """Two sockets; the firmware's distances: 10 itself, 12 the same socket, 21 or (of four nodes each) 32."""
        count, far = 2 * self.server.per_socket, 21 if self.server.per_socket == 1 else 32
        socket = [number // self.server.per_socket for number in range(count)]
        for one in range(count):
            row = [10 if one == other else 12 if socket[one] == socket[other] else far for other in range(count)]
            node = self.sysfs / f"devices/system/node/node{one}"
            self.files[node / "cpulist"] = f"{8 * one}-{8 * one + 7}"
            self.files[node / "distance"] = " ".join(map(str, row))
            cpu = self.sysfs / f"devices/system/cpu/cpu{8 * one}/topology/physical_package_id"
            self.files[cpu] = str(socket[one])
        for one in self.server.memory_nodes:
            node = self.sysfs / f"devices/system/node/node{one}"
            self.files |= {node / "cpulist": "", node / "distance": " ".join(["80"] * count)}


def space(acs: int | None) -> bytes:
    """Configuration space of a port: Advanced Error Reporting, then Access Control Services with that control."""
    made = bytearray(4096)
    struct.pack_into("<I", made, 0x100, 0x0001 | 2 << 16 | (0x148 if acs is not None else 0) << 20)
    if acs is not None:
        struct.pack_into("<IHH", made, 0x148, 0x000D | 1 << 16, 0x5F, acs)
    return bytes(made)


def write(server: Server, sysfs: Path, acs: Mapping[str, int] | None = None, root: bool = True) -> Path:
    """The server's sysfs below that folder. `acs`: a port's control register; `root`: what is shown to nobody else."""
    made = _Writer(sysfs, server, acs=acs or {}, root=root)
    for root in server.roots:
        bridge = sysfs / f"devices/pci0000:{root.bus:02x}"
        made.plug(bridge / f"0000:{root.bus:02x}:00.0", root.numa, root.below, iter(range(root.bus + 1, 256)))
    made.numa()
    for number in range(0 if server.switch_trays else server.nvswitches):
        switch = sysfs / f"devices/pci0000:04/0000:04:00.0/0000:05:{number:02x}.0"
        made.function(switch, 2, vendor="0x10de", **{"class": "0x068000"})
    for path, text in made.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    for path, raw in made.config.items():
        path.write_bytes(raw)
    for path, target in made.links.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    return sysfs


def with_gpu(server: Server, number: int, change: Callable[[Gpu], Gpu]) -> Server:
    """The server with its GPU of that number, counted along the tree, changed."""
    seen = iter(range(server.gpus))

    def walk(card: Card) -> Card:
        if isinstance(card, Switch):
            return replace(card, below=tuple(walk(each) for each in card.below))
        return change(card) if isinstance(card, Gpu) and next(seen) == number else card

    return replace(server, roots=tuple(replace(root, below=walk(root.below)) for root in server.roots))


REGISTERED = {"state": "completed", "status": 0, "clique": 0, "cluster": "00000000-0000-0000-0000-000000000000"}
#: What NVML says of a GPU whose NVLinks leave the server: which rack it is one of, and which part of it.
IN_RACK = {**REGISTERED, "clique": 32766, "cluster": "6f1f1a52-6f3c-5b6e-9d53-5e1a57e1a1a1"}
"""What NVML tells of a GPU's fabric that ends with the server."""


def nvlink(server: Server, gpus: list[str]) -> list[dict[str, Any]]:
    """What NVML tells of its NVLinks; `gpus` are their addresses. All are up."""
    found = []
    for one, address in enumerate(gpus):
        ends: list[tuple[str, str]] = []
        if server.nvswitches:
            ends = [("switch", f"0000:05:{number % server.nvswitches:02x}.0") for number in range(server.nvlinks)]
        elif server.nvlinks:
            for other, there in enumerate(gpus):
                more = (min(one, other), max(one, other)) in server.doubled
                ends += [("gpu", there)] * ((server.nvlinks + more) if other != one else 0)
        rate = {"up": True, "rate_mb_s": server.link_mb_s}
        links = [{"number": n, "peer": peer, "address": at, **rate} for n, (peer, at) in enumerate(ends)]
        fabric = IN_RACK if server.switch_trays else REGISTERED if server.nvswitches else None
        found.append({"address": address, "links": links, "fabric": fabric})
    return found


def without_link(said: list[dict[str, Any]], one: int, other: int) -> list[dict[str, Any]]:
    """One NVLink between two GPUs is down, at both of its ends; what is at the other end of it nobody knows."""
    addresses = [gpu["address"] for gpu in said]
    found = []
    for number, gpu in enumerate(said):
        links = [dict(link) for link in gpu["links"]]
        if number in (one, other):
            far = addresses[other if number == one else one]
            lost = next((link for link in links if link["address"] == far), links[-1])
            lost.update(up=False, peer="", address="")
        found.append({**gpu, "links": links})
    return found
