"""The machines that the founding documents name: what their nodes would say of themselves. Constructed, not recorded.

Models, processors and how GPUs are attached are those of the documents, as far as they tell; what they do not tell is
chosen, and no verdict on such a machine says anything of a real one. The inventories are those of inventories/.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support.driver import whole
from tests.support.site import ADAPTER
from validation.model import Node

GEN3, GEN2 = {"gt_s": 8.0, "lanes": 16}, {"gt_s": 5.0, "lanes": 32}
SILVER = "Intel(R) Xeon(R) Silver 4116 CPU @ 2.10GHz"
GOLD = "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz"
BROADWELL = "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz"


@dataclass(frozen=True)
class Machine:
    """A kind of machine. `roots` and `numas` of its GPUs one by one: the bus of the host port above, and NUMA node."""

    model: str
    cpu: tuple[str, int, int]  # model, sockets, cores of all
    memory_gib: float
    nic: str
    layer: str = "Ethernet"  # of its RDMA device
    device: str = "mlx5_0"  # "": it has no RDMA
    rate_words: str = ""
    gpu: str = ""
    roots: tuple[str, ...] = ()
    numas: tuple[int | None, ...] = ()
    virt: str = "none"

    @property
    def gpus(self) -> int:
        """How many."""
        return len(self.roots)


CX3 = "Mellanox Technologies MT27500 Family [ConnectX-3]"
CX5 = "Mellanox Technologies MT27800 Family [ConnectX-5]"
VMXNET3 = "VMware VMXNET3 Ethernet Controller (rev 01)"
V100 = "Tesla V100-SXM2-16GB"
# One port of the host above the switch of all GPUs; or a port for each, two at each processor.
SWITCHED = {"roots": ("16",) * 4, "numas": (0,) * 4}
DIRECT = {"roots": ("16", "3a", "85", "ae"), "numas": (0, 0, 1, 1)}
EDR = {"layer": "InfiniBand", "rate_words": "4X EDR", "nic": CX5}
FDR = {"layer": "InfiniBand", "rate_words": "4X FDR", "nic": CX3, "device": "mlx4_0"}

C4140_K: Any = Machine("PowerEdge C4140", (SILVER, 2, 24), 384, gpu=V100, **SWITCHED, **EDR)
C4140_M: Any = Machine("PowerEdge C4140", (GOLD, 2, 40), 384, gpu=V100, **DIRECT, **EDR)
R740_P40 = Machine("PowerEdge R740", (GOLD, 2, 40), 192, "", device="", gpu="Tesla P40", roots=("17", "3a", "ae"),
                   numas=(0, 0, 1))  # fmt: skip
C4130: Any = Machine("PowerEdge C4130", (BROADWELL, 2, 28), 256, gpu="Tesla P100-PCIE-16GB", **SWITCHED, **FDR)
R730: Any = Machine("PowerEdge R730", (BROADWELL, 2, 28), 256, **FDR)
C4140_ROCE = replace(C4140_K, layer="Ethernet", rate_words="4X QDR")
R740_ROCE = Machine("PowerEdge R740", (GOLD, 2, 40), 192, CX5, rate_words="4X QDR")
VM = Machine("VMware7,1", (GOLD, 2, 16), 64, VMXNET3, device="", virt="vmware")


def of_vm(machine: Machine) -> Machine:
    """With a V100 handed to it: behind a port of the hypervisor's making, and of no NUMA node that it tells."""
    return replace(machine, gpu="Tesla V100-PCIE-16GB", roots=("02",), numas=(None,))


DIRECTPATH = replace(VM, nic=CX5, device="mlx5_0", rate_words="4X EDR")
PVRDMA = replace(VM, device="vmw_pvrdma0", rate_words="4X EDR")
SITES: dict[str, dict[str, Machine]] = {
    "c4130-fdr": {**dict.fromkeys(("client1", "client2"), R730), **{f"gpu{n}": C4130 for n in range(1, 5)}},
    "c4140-roce40": {"client1": R740_ROCE, "gpu1": C4140_ROCE, "gpu2": C4140_ROCE},
    "c4140-2018": {"r740": R740_P40, "gpu1": C4140_K, "gpu2": C4140_K},
    "vmware-vmxnet3-10": {"client1": VM, "gpu1": of_vm(VM)},
    "vmware-roce100": {"client1": DIRECTPATH, "gpu1": of_vm(DIRECTPATH)},
    "vmware-pvrdma100": {"client1": PVRDMA, "gpu1": of_vm(PVRDMA)},
}
"""Inventory -> its nodes as they were delivered."""


def _above(machine: Machine, root: str, number: int, virtual: bool) -> dict[str, Any]:
    """The ports above a card: the host's, and of the switch that several GPUs of one root share."""
    ports = [f"0000:{root}:00.0"]
    if machine.roots.count(root) > 1:
        bus = int(root, 16)
        ports += [f"0000:{bus + 1:02x}:00.0", f"0000:{bus + 2:02x}:{8 + 2 * number:02x}.0"]
    can = GEN2 if virtual else GEN3
    off = {"capable": True, "control": 0}
    return {
        "above": [{"address": address, "link": can, "card": can, "acs": off} for address in ports],
        "host_bridge": f"0000:{root}",
    }


def cards(machine: Machine, node: Node) -> list[dict[str, Any]]:
    """PCI Express links of GPUs and fabric ports, as the facts probe prints them."""
    virtual = machine.virt != "none"
    gpus = [
        {
            "what": "gpu", "address": f"0000:{int(root, 16) + 3 + i:02x}:00.0", "link": GEN3, "card": GEN3,
            "numa": numa, **_above(machine, root, i, virtual),
        }
        for i, (root, numa) in enumerate(zip(machine.roots, machine.numas, strict=True))
    ]  # fmt: skip
    link = GEN2 if machine.nic == VMXNET3 else GEN3
    nics = [
        {
            "what": "nic", "interface": port.interface, "address": f"0000:5e:00.{i}", "link": link, "card": link,
            "numa": None if virtual else 0, **_above(machine, "5d", i, virtual), **ADAPTER,
        }
        for i, port in enumerate(node.ports)
    ]  # fmt: skip
    return [*nics, *gpus]


def nvlinks(machine: Machine, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What NVML tells of the GPUs among these cards: of SXM2 two NVLinks to each other GPU, of others none."""
    gpus = [card["address"] for card in found if card["what"] == "gpu"]
    said = []
    for address in gpus:
        far = [other for other in gpus for _ in range(2) if other != address and "SXM2" in machine.gpu]
        links = [{"number": n, "up": True, "peer": "gpu", "address": other} for n, other in enumerate(far)]
        said.append({"address": address, "links": links})
    return said


def rdma_devices(machine: Machine, node: Node) -> list[dict[str, Any]]:
    """The one device, if any, with the node's ports."""
    names = [port.interface for port in node.ports]
    return [{"name": machine.device, "interfaces": names}] if machine.device and names else []


def fabric_ports(machine: Machine, node: Node, mtu: int) -> list[dict[str, Any]]:
    """The fabric ports, up, at the rate that was declared."""
    found: list[dict[str, Any]] = []
    for number, port in enumerate(node.ports, 1):
        rdma = {"device": machine.device, "port": number, "link_layer": machine.layer, "state": "ACTIVE"}
        rate = int(1000 * (port.rate_gbps or 0))
        there: dict[str, Any] = {"interface": port.interface, "operstate": "up", "mtu": mtu, "speed_mbit": rate}
        found.append({**there, "rdma": rdma if machine.device else None})
    return found


def facts(machine: Machine, node: Node, mtu: int) -> dict[str, Any]:
    """All facts of a node; its system and stack are those that the inventory declares."""
    model, sockets, cores = machine.cpu
    return {
        "type": "node", "virt": machine.virt, "lab": "", "model": machine.model, "cpu_count": 2 * cores,
        "cpu_model": model, "cpu_sockets": sockets, "cpu_cores": cores, "memory_gib": machine.memory_gib,
        "gpu_count": machine.gpus, "gpu_model": machine.gpu, "nic_model": machine.nic if node.ports else "",
        "fabric_ports": fabric_ports(machine, node, mtu), "rdma_devices": rdma_devices(machine, node),
        **(whole("580.173.02") if machine.gpus else {}),
        "pci": cards(machine, node), "nvlink": nvlinks(machine, cards(machine, node)),
        "kernel": "5.15.0-161-generic", "python": "3.10.12", "openmpi": "4.1.4",
        "docker": "29.9.0", "docker_package": "docker-ce 5:29.9.0-1", "runc": "1.4.3", "library_env": {"settings": []},
        "tuning": {"governors": [], "sysctls": []},
        "state": {
            "addresses": [{"interface": port.interface, "address": port.address} for port in node.ports],
            "utc_offset_s": 0, "name_servers": [], "file_systems": [], "others_busy_processors": 0.0,
        },
        "horovod": "0.28.1",
        "torch": "2.4.1", "probes": "0.1.0", "driver": "580.173.02", "fabric_manager": "", "cuda": "",
        "cudnn": "9.10.2.21", "nccl": "2.30.4", "ofed": "3.2.1",
        "container_toolkit": "1.19.1", "dcgm": "4.6.0", "slurm": "", "os": "", "stack_release": "",
        "stand_ins": [], "not_applicable": [], "drift": [], "reboot_pending": [], **node.stack,
    }  # fmt: skip


def gid(machine: Machine, address: str) -> str:
    """Of a RoCE port that of its address; of an InfiniBand port one that belongs to its GUID."""
    if machine.layer == "InfiniBand":
        return (
            f"fe80::{guid_of(address)[2:6]}:{guid_of(address)[6:10]}:{guid_of(address)[10:14]}:{guid_of(address)[14:]}"
        )
    return f"::ffff:{address}"


def guid_of(address: str) -> str:
    """A GUID that tells the ports of a fabric apart."""
    return f"0xb8599f0300{int(address.rpartition('.')[2]):02x}0001"


def rdma_ports(machine: Machine, node: Node, mtu: int, names: Sequence[str], brief: bool) -> dict[str, Any]:
    """What the probe of RDMA ports says: lossless where the fabric is Ethernet, nothing lost."""
    ports = []
    for number, port in enumerate(node.ports, 1):
        if port.interface not in names:
            continue
        said: dict[str, Any] = {
            "interface": port.interface, "present": True, "operstate": "up", "mtu": mtu, "device": machine.device,
            "port": number, "state": "ACTIVE", "physical_state": "LinkUp", "link_layer": machine.layer,
            "rate_gbps": port.rate_gbps, "rate_words": machine.rate_words, "firmware": "16.35.2000", "board": "",
            "driver": "vmw_pvrdma" if machine.device.startswith("vmw") else f"{machine.device[:4]}_core",
            "gids": [{"index": 3, "type": "RoCE v2", "gid": gid(machine, port.address), "interface": port.interface}],
            "counters": {"out_of_sequence": 7, "link_downed": 1, "symbol_error": 0, "tx_pause_storm_error_events": 0},
        }  # fmt: skip
        if machine.layer == "InfiniBand":
            said["gids"] = [{"index": 0, "type": "IB/RoCE v1", "gid": gid(machine, port.address), "interface": ""}]
        if not brief:
            said |= {"active_mtu_bytes": 4096, "active_mtu_unread": ""}
            if machine.layer == "Ethernet":
                said["qos"] = _settings(machine)
        ports.append(said)
    found: dict[str, Any] = {"type": "rdma-ports", "ports": ports}
    if not brief:
        found |= {"memlock": {"bytes": -1, "user": "nobody", "unread": ""}, "policy": None}
    return found


def _settings(machine: Machine) -> dict[str, Any]:
    """As NVIDIA's guidance has them; of a paravirtual device the guest sees those of the hypervisor's adapter not."""
    settings: dict[str, Any] = {
        "roce_mode": "RoCE v2", "tos": 106, "trust": "dscp", "dscp_prio": {"26": 3, "48": 6}, "pfc": [3],
        "pause": {"rx": False, "tx": False}, "ecn": True, "traffic_class": 106, "unread": [],
    }  # fmt: skip
    if machine.device.startswith("vmw"):
        unread = ["PFC and DSCP trust: the device has no DCB (dcb: Attribute read: Operation not supported)"]
        hidden = ("trust", "dscp_prio", "pfc", "pause", "ecn", "traffic_class")
        settings |= {**dict.fromkeys(hidden), "unread": unread}
    return settings
