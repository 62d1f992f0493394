"""What nodes answer to the reading probe. Constructed after public specifications of the machines; recorded of none.

The shape is that of a real answer: tests/functional/test_inventory_scan.py reads this machine with the same probe.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
CX7 = "Mellanox Technologies MT2910 Family [ConnectX-7]"
H100 = "0x2330"


def port(name: str, number: int, **given: Any) -> Json:
    """A port of a ConnectX-7 at 400 Gbit/s with a link, unless it is given otherwise."""
    return {
        "interface": name,
        "mac": f"02:00:00:00:{number // 256:02x}:{number % 256:02x}",
        "link_layer": "ethernet",
        "driver": "mlx5_core",
        "operstate": "up",
        "speed_mbit": 400_000,
        "fastest_mbit": 400_000,
        "card": {"address": f"0000:{number % 256:02x}:00.0", "numa": 0, "root_port": ""},
        "nic_model": CX7,
        "virtual_function": False,
        "master": "",
        "rdma": {"device": f"mlx5_{number % 32}", "port": 1, "link_layer": "Ethernet", "state": "ACTIVE"},
        "addresses": [],
        "managers": [],
        **given,
    }


def management(address: str, number: int, manager: str) -> Json:
    """The onboard port at 1 Gbit/s that carries the management address."""
    slow = {"speed_mbit": 1000, "fastest_mbit": 1000, "driver": "tg3", "rdma": None, "nic_model": "BCM5720"}
    return port("eno8303", number, addresses=[f"{address}/24"], managers=[manager], **slow)


def bmc_port(number: int) -> Json:
    """The network over USB between a PowerEdge and its iDRAC."""
    none: Json = {"card": None, "rdma": None, "speed_mbit": None, "fastest_mbit": None, "nic_model": ""}
    return port("idrac", number, driver="cdc_ether", **none)


def node(name: str, address: str, **given: Any) -> Json:
    """What all have in common."""
    return {
        "type": "inventory-scan",
        "hostname": f"{name}.example.net",
        "machine_id": f"id-of-{name}",
        "virt": "none",
        "model": "PowerEdge R760",
        "os": "ubuntu 24.04",
        "kernel": "6.8.0-87-generic",
        "python": "3.12.3",
        "root": "without password",
        "reached_at": address,
        "network": ["networkd"],
        "cpu_model": "Intel(R) Xeon(R) Platinum 8470",
        "cpu_sockets": 2,
        "cpu_cores": 104,
        "memory_gib": 2048.0,
        "gpu_names": [],
        "gpus": [],
        "ports": [],
        "rdma_devices": [],
        **given,
    }


def xe9680(number: int, address: str, **given: Any) -> Json:
    """An XE9680: each GPU shares a root port with one of eight ports; two more of the kind are for storage."""
    roots = [f"0000:{0x15 + 0x10 * rail:02x}:01.0" for rail in range(8)]
    gpus = [
        {"address": f"0000:{0x18 + 0x10 * rail:02x}:00.0", "device": H100, "numa": rail // 4, "root_port": root}
        for rail, root in enumerate(roots)
    ]
    ports = [management(address, number * 100, "netplan"), bmc_port(number * 100 + 1)]
    for slot in range(31, 41):
        rail = slot - 31
        root = roots[rail] if rail < 8 else "0000:f0:01.0"
        card = {"address": f"0000:{0x19 + 0x10 * rail:02x}:00.0", "numa": rail // 5, "root_port": root}
        ports.append(port(f"ens{slot}np0", number * 100 + slot, card=card))
    return node(f"gpu{number}", address, **{"model": "PowerEdge XE9680", "gpus": gpus, "ports": ports, **given})


def r760(name: str, number: int, address: str, **given: Any) -> Json:
    """A client: one ConnectX-7, its address set by netplan already."""
    fabric = port(
        "ens1np0", number * 100 + 1, addresses=[f"10.80.0.{address.rpartition('.')[2]}/24"], managers=["netplan"]
    )
    return node(name, address, **{"ports": [management(address, number * 100, "netplan"), fabric], **given})


def el9(name: str, number: int, address: str, **given: Any) -> Json:
    """A machine with Rocky 9 as installed: NetworkManager has every port, lspci is missing, sudo asks."""
    fabric = port("ens1np0", number * 100 + 1, nic_model="0x15b3:0x1021", managers=["NetworkManager"], speed_mbit=None)
    system = {"os": "rocky 9.6", "kernel": "5.14.0-570.58.1.el9_6.x86_64", "python": "3.9.21", "root": "with password"}
    ports = [management(address, number * 100, "NetworkManager"), {**fabric, "operstate": "down"}]
    return node(name, address, **{**system, "network": ["NetworkManager"], "ports": ports, **given})
