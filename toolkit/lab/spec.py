"""What a lab is: its names, addresses and folders. Everything else is derived from these, so that `down` can find
what `up` made by name alone, even when `up` was killed before it could write anything."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolkit.errors import LabError, or_nearest

DEFAULT_NAME = "lab"
#: The project's inventory, which lists the lab of that name.
LAB = Path("inventories/lab")
NETNS_PREFIX = "eai-"
VENDOR_HOST = "vendor.elastic-ai.lab"  # stands in for the vendors' hosts, in a lab's own network alone
NODE_NAME = r"(?:head|client\d+|gpu\d+)"  # as a regular expression
#: Ethernet bytes around an IP packet: what a queueing discipline counts (header) and what the wire carries
#: (header 14 + FCS 4 + preamble 8 + inter-frame gap 12), IEEE 802.3.
COUNTED_OVERHEAD_BYTES = 14
WIRE_OVERHEAD_BYTES = 38
FABRIC_MTU = 9000
SWITCH_MTU = 9216
#: Storage of a lab of containers by its name in the inventory, and what is ordered of it, 10^9 bytes a second: little,
#: so that a disk beside other work reaches it.
STORAGE = "lab"
STORAGE_GB_S = 0.02


def state_root() -> Path:
    """Where labs live: ELASTIC_AI_LAB_DIR, else /var/lib/elastic-ai-toolkit. Must not be on an overlay file system."""
    return Path(os.environ.get("ELASTIC_AI_LAB_DIR", "/var/lib/elastic-ai-toolkit"))


def cache_root() -> Path:
    """Where base images and downloaded packages are kept between labs."""
    return Path(os.environ.get("ELASTIC_AI_LAB_CACHE", "/var/cache/elastic-ai-toolkit"))


def unpacked_root() -> Path:
    """Where the files of downloaded packages lie as tar, named by the SHA-256 of the package."""
    return cache_root() / "unpacked"


def node_groups(count: int) -> list[tuple[str, str]]:
    """Names and groups of a lab of `count` nodes: head first, one CPU-only client from four nodes on, the rest GPU
    servers. Raises LabError below 2 or above 60 nodes."""
    if not 2 <= count <= 60:
        raise LabError(f"--nodes {count}: a lab has 2 to 60 nodes")
    nodes = [("head", "heads")]
    if count >= 4:
        nodes.append(("client1", "clients"))
    gpus = count - len(nodes)
    return nodes + [(f"gpu{i}", "gpu_servers") for i in range(1, gpus + 1)]


@dataclass(frozen=True)
class NodeSpec:
    """One node of a lab; its number gives its addresses. A container is systemd-nspawn's, a vm qemu's."""

    name: str
    group: str
    number: int
    kind: Literal["container", "vm"] = "container"


@dataclass(frozen=True)
class LabSpec:
    """A lab: `index` picks its networks (10.77.<index>.0/24 management, 10.78.<index>.0/24 fabric)."""

    name: str
    index: int
    nodes: tuple[NodeSpec, ...]
    rate_gbps: float
    #: The nodes' operating system, "debian 12".
    os: str
    #: What truly runs on them where they only stand in for that system, "debian 12".
    over: str = ""
    #: How its virtual machines run; "" in a lab without any. Empty as well until `up` has found out.
    accel: Literal["", "kvm", "tcg"] = ""
    #: Whether each node has an emulated BMC.
    bmc: bool = False
    #: Whether the fabric's switch announces its ports, and shows its configuration.
    switch: bool = False
    #: Folder of the mirror that is all that its nodes reach; "" where they reach what the machine reaches.
    mirror: str = ""
    #: Whether the inventory declares the folder that its nodes share as a storage.
    storage: bool = False

    @property
    def vms(self) -> bool:
        """Whether some nodes are virtual machines."""
        return any(n.kind == "vm" for n in self.nodes)

    @property
    def os_words(self) -> str:
        """The nodes' operating system, and that they stand in for it: `ubuntu 24.04 (stand-in over debian 12)`."""
        return f"{self.os} (stand-in over {self.over})" if self.over else self.os

    @property
    def dir(self) -> Path:
        """The lab's folder."""
        return lab_dir(self.name)

    @property
    def vendor(self) -> Path:
        """The link to the stand-ins of the vendors' repositories that this lab serves."""
        return self.dir / "vendor"

    @property
    def switch_ns(self) -> str:
        """The network namespace that holds both bridges and the way out."""
        return f"{NETNS_PREFIX}{self.name}"

    @property
    def host_interface(self) -> str:
        """The one interface in the machine's own namespace: its leg in the management network."""
        return host_interface(self.index)

    def node(self, name: str) -> NodeSpec:
        """The node of that name; LabError naming those that exist."""
        for node in self.nodes:
            if node.name == name:
                return node
        names = [node.name for node in self.nodes]
        there = or_nearest(name, names, f"it has {', '.join(names)}", numbered=True)
        raise LabError(f"lab '{self.name}' has no node '{name}'; {there}")

    def after(self, node: NodeSpec) -> NodeSpec:
        """The next node of the lab; after the last the first."""
        names = [one.name for one in self.nodes]
        return self.nodes[(names.index(node.name) + 1) % len(names)]

    def node_ns(self, node: NodeSpec) -> str:
        """The node's network namespace."""
        return f"{self.switch_ns}-{node.name}"

    def node_dir(self, node: NodeSpec) -> Path:
        """The node's folder: overlay layers, console log, Docker's data."""
        return self.dir / "nodes" / node.name

    def management_address(self, node: NodeSpec) -> str:
        """Management IPv4 address, without prefix (/24)."""
        return f"10.77.{self.index}.{10 + node.number}"

    def fabric_address(self, node: NodeSpec) -> str:
        """Fabric IPv4 address, without prefix (/24)."""
        return f"10.78.{self.index}.{10 + node.number}"


def host_interface(index: int) -> str:
    """Name of the machine's leg in the management network of the lab with that index.

    No name in "e": systemd-networkd takes the address off an interface that a machine's `Name=e*` matches.
    """
    return f"lab-eai{index}"


def lab_dir(name: str) -> Path:
    """The folder of the lab called `name`; LabError for a name that cannot be part of an interface or path."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,20}", name):
        raise LabError(f"--name {name!r}: use up to 21 lower-case letters, digits and dashes, a letter first")
    if re.search(f"-{NODE_NAME}$", name):
        raise LabError(f"--name {name!r}: it ends like a node name; choose another")
    return state_root() / "labs" / name


def inventory_dir(name: str) -> Path:
    """The folder of the inventory that the lab called `name` has while it is up; it goes with the lab."""
    return lab_dir(name) / "inventory"


def make_spec(
    name: str, index: int, count: int, rate_gbps: float, os_title: str = "debian 12", vms: bool = False, over: str = "",
    bmc: bool = False, switch: bool = False, mirror: str = "", storage: bool = False,
) -> LabSpec:  # fmt: skip
    """The spec of a new lab. `rate_gbps` (10^9 bit/s) is the declared line rate of every fabric link; `os_title` the
    nodes' operating system, `over` what truly runs where they stand in for it; with `vms` GPU servers are virtual
    machines."""
    lab_dir(name)
    if vms and over:
        raise LabError(f"{os_title} is a stand-in over {over}, which containers alone can be; leave --os out")
    if vms and storage:
        raise LabError(
            "--storage is a folder that containers share, which machines do not have; leave one of the two out"
        )
    if not 0.001 <= rate_gbps <= 100:
        raise LabError(f"--rate {rate_gbps}: give the link rate in Gbit/s, 0.001 to 100")
    nodes = tuple(
        NodeSpec(n, group, i + 1, "vm" if vms and group == "gpu_servers" else "container")
        for i, (n, group) in enumerate(node_groups(count))
    )
    return LabSpec(
        name, index, nodes, rate_gbps, os_title, over, bmc=bmc, switch=switch, mirror=mirror, storage=storage
    )


def read_faults(spec: LabSpec) -> dict[str, str]:
    """Planted faults by node name."""
    path = spec.dir / "faults.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def counted_rate_bps(line_rate_gbps: float, mtu: int = FABRIC_MTU) -> int:
    """The bit rate to give to a queueing discipline so that full-size packets pass as on a wire of `line_rate_gbps`.

    A discipline counts the packet and its 14-byte header; a wire also carries preamble, FCS and gap. Scaling by
    (MTU+14)/(MTU+38) makes TCP's payload rate rate*(MTU-52)/(MTU+38), as on real Ethernet.
    """
    return round(line_rate_gbps * 1e9 * (mtu + COUNTED_OVERHEAD_BYTES) / (mtu + WIRE_OVERHEAD_BYTES))
