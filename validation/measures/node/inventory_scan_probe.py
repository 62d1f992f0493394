"""What stands in a machine that nobody has described yet: for `toolkit inventory`. Needs no root, changes nothing.

It runs before anything is installed: its source comes over the ssh connection (toolkit/scan/shipped.py) and leaves no
file.
What a tool that is missing would have said is "" or None, never a guess.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

from validation.measures.node import facts_probe
from validation.probes import pcie, processors, smi
from validation.probes.belongings import belongings
from validation.probes.rdma_ports_sysfs import SYSFS, read, represented
from validation.probes.tool import run_tool

TYPE = "inventory-scan"
TIMEOUT_S = 10.0
INFINIBAND = "32"  # ARPHRD_INFINIBAND, linux/if_arp.h
#: PCI classes: 3D controllers, other display controllers, processing accelerators.
ACCELERATORS = ("0x0302", "0x0380", "0x1200")
_ROOT = Path("/")
_SERVICES = {
    "NetworkManager": "NetworkManager.service",
    "networkd": "systemd-networkd.service",
    "ifupdown": "networking.service",
}
#: Of ethtool: the line and those below it that go on, up to the next one with a name of its own.
_MODES = re.compile(r"^\s*Supported link modes:(.*(?:\n(?!.*:).*)*)", re.MULTILINE)


def _say(*command: str) -> str:
    ran = run_tool(command, timeout_s=TIMEOUT_S)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def fastest_mbit(said: str) -> int | None:
    """The fastest of a port's supported link modes in ethtool's output (`400000baseCR4/Full`), in Mbit/s."""
    modes = _MODES.search(said)
    rates = [int(rate) for rate in re.findall(r"\b(\d+)base", modes[1])] if modes else []
    return max(rates, default=None)


def addresses() -> dict[str, list[str]]:
    """Interface -> its IPv4 addresses with prefix length, those of the link itself (169.254) left out."""
    try:
        links = json.loads(_say("ip", "-j", "-4", "address", "show") or "[]")
    except ValueError:
        return {}
    found: dict[str, list[str]] = {}
    for link in links:
        own = [f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", []) if a.get("scope") != "link"]
        found[str(link.get("ifname", ""))] = own
    return found


def network_services() -> list[str]:
    """Which services that manage networks are active here."""
    names = list(_SERVICES)
    said = run_tool(["systemctl", "is-active", *_SERVICES.values()], timeout_s=TIMEOUT_S).stdout.split()
    return [name for name, state in zip(names, said) if state == "active"]


def ifupdown_ports(root: Path = _ROOT) -> set[str]:
    """Ports with a stanza in ifupdown's files: those that /etc/network/interfaces sources among them.

    None where ifupdown is not installed: a system that was upgraded from it keeps its files, which nobody reads.
    """
    if not any((root / place / "ifup").exists() for place in ("sbin", "usr/sbin")):
        return set()
    folder = root / "etc" / "network"
    wanted, texts, seen = [folder / "interfaces", *sorted((folder / "interfaces.d").glob("*"))], [], set()
    while wanted:
        path = wanted.pop()
        text = read(path) if path not in seen else ""
        seen.add(path)
        texts.append(text)
        for word, pattern in re.findall(r"^\s*(source|source-directory)\s+(\S+)", text, re.MULTILINE):
            place = root / pattern.lstrip("/") if pattern.startswith("/") else path.parent / pattern
            found = sorted(place.parent.glob(place.name))
            wanted += [each for one in found for each in one.glob("*")] if word == "source-directory" else found
    stanzas = {name for text in texts for name in re.findall(r"^\s*iface\s+(\S+)", text, re.MULTILINE)}
    return {name.split(":")[0] for name in stanzas}


def managed_by_networkmanager(said: str) -> set[str]:
    """Ports of `nmcli -t -f DEVICE,STATE device` that it manages."""
    rows = (line.rpartition(":") for line in said.splitlines())
    return {device.replace("\\:", ":") for device, _, state in rows if state not in ("", "unmanaged")}


def networkd_file(interface: str, sysfs: Path = SYSFS, root: Path = _ROOT) -> str:
    """The .network file that systemd-networkd took for a port, "" where it manages it not."""
    link = read(root / "run" / "systemd" / "netif" / "links" / read(sysfs / "class" / "net" / interface / "ifindex"))
    state = re.search(r"^ADMIN_STATE=(\S+)$", link, re.MULTILINE)
    file = re.search(r"^NETWORK_FILE=(\S+)$", link, re.MULTILINE)
    return file[1] if file and state and state[1] != "unmanaged" else ""


def managers(interface: str, nm: set[str], ifupdown: set[str], sysfs: Path = SYSFS, root: Path = _ROOT) -> list[str]:
    """Who manages a port: none, one, or (a fault of the site) several. Netplan's own files are named as netplan."""
    found = ["NetworkManager"] if interface in nm else []
    file = networkd_file(interface, sysfs, root)
    if file:
        found.append("netplan" if Path(file).name.startswith("10-netplan-") else "networkd")
    return found + (["ifupdown"] if interface in ifupdown else [])


def _place(card: dict[str, Any]) -> dict[str, Any]:
    """Where a card is."""
    return {"address": card["address"], "numa": card["numa"], "root_port": pcie.root_port(card)}


def no_cable(name: str, sysfs: Path = SYSFS) -> str:
    """Why no cable is in an interface that has a PCI function; "" where one may be.

    In the mode switchdev an adapter has an interface for each function behind its own switch, on the port's PCI
    function. Drivers from before these said their names (phys_port_name) have one of another name for them.
    """
    net = sysfs / "class" / "net" / name
    if shown := represented(name, sysfs):
        return f"represents {shown} in the adapter's switch"
    if re.search(r"\.sf\.\d+$", (net / "device").resolve().name):  # auxiliary bus: mlx5_core.sf.4
        return "a scalable function"
    if read(net / "parent"):  # of IPoIB
        return f"a child of {read(net / 'parent')}"
    if read(net / "phys_switch_id") and not read(net / "phys_port_name"):
        driver = re.search(r"^driver: (\S*rep)$", _say("ethtool", "-i", name), re.MULTILINE)
        return f"a representor (driver {driver[1]})" if driver else ""
    return ""


def port(name: str, sysfs: Path = SYSFS) -> dict[str, Any]:
    """A network interface; `card` is None without a PCI device (USB, virtual)."""
    net = sysfs / "class" / "net" / name
    function = pcie.function_of(name, sysfs)
    driver, master = net / "device" / "driver", net / "master"
    link = facts_probe.fabric_port(name, sysfs)
    usb = function is not None and "/usb" in str((net / "device").resolve())
    card = pcie.describe(function) if function is not None and not usb else None
    return {
        "interface": name,
        "mac": read(net / "address"),
        "link_layer": "infiniband" if read(net / "type") == INFINIBAND else "ethernet",
        "driver": driver.resolve().name if driver.exists() else "",
        "operstate": link["operstate"],
        "speed_mbit": link["speed_mbit"],
        "fastest_mbit": fastest_mbit(_say("ethtool", name)),
        "card": _place(card) if card else None,
        "nic_model": facts_probe.nic_model(name) if card else "",
        "virtual_function": (net / "device" / "physfn").exists(),
        "no_cable": no_cable(name, sysfs) if card else "",
        "master": master.resolve().name if master.exists() else "",
        "rdma": link["rdma"],
    }


def ports(sysfs: Path = SYSFS, root: Path = _ROOT) -> list[dict[str, Any]]:
    """Every interface that could be a port of a network: no loopback, bridge, bond or VLAN."""
    own, ifupdown = addresses(), ifupdown_ports(root)
    nm = managed_by_networkmanager(_say("nmcli", "-t", "-f", "DEVICE,STATE", "device"))
    found = []
    for net in sorted((sysfs / "class" / "net").glob("*")):
        # DEVTYPE is of what is made of others, or of no cable (bond, bridge, vlan, wlan)
        if net.name == "lo" or not net.is_dir() or "DEVTYPE=" in read(net / "uevent"):
            continue
        told = {"addresses": own.get(net.name, []), "managers": managers(net.name, nm, ifupdown, sysfs, root)}
        found.append({**port(net.name, sysfs), **told})
    return found


def gpus(sysfs: Path = SYSFS) -> list[dict[str, Any]]:
    """NVIDIA's GPUs on the PCI bus, with their device ids; there is no driver yet that could name them."""
    found = []
    for card in pcie.collect([], sysfs):
        function = sysfs / "bus" / "pci" / "devices" / card["address"]
        ids = {"device": read(function / "device"), "subsystem": read(function / "subsystem_device")}
        found.append({**ids, **_place(card)})
    return found


def accelerators(sysfs: Path = SYSFS) -> list[str]:
    """PCI ids of accelerators without a screen that are not NVIDIA's, as `1002:74a1`; what a processor has in itself
    (bus 0) is none.
    """
    found = []
    for function in sorted((sysfs / "bus" / "pci" / "devices").glob("*")):
        vendor = read(function / "vendor")
        if vendor == pcie.GPU_VENDOR or function.name.split(":")[1] == "00" or (function / "physfn").exists():
            continue
        if read(function / "class").startswith(ACCELERATORS):
            found.append(f"{vendor[2:]}:{read(function / 'device')[2:]}")
    return found


def becomes_root() -> str:
    """How this user becomes root: `is` it, `without password`, `with password`, or `unknown` (no sudo)."""
    if os.geteuid() == 0:
        return "is"
    code = run_tool(["sudo", "-n", "true"], timeout_s=TIMEOUT_S).returncode
    return {0: "without password", 127: "unknown"}.get(code, "with password")


def collect() -> dict[str, Any]:
    """Everything, as toolkit.scan.answer.Answer."""
    virt = run_tool(["systemd-detect-virt"], timeout_s=TIMEOUT_S).stdout.strip()
    container = run_tool(["systemd-detect-virt", "--quiet", "--container"], timeout_s=TIMEOUT_S).returncode == 0
    names = smi.answering()
    return {
        "type": TYPE,
        "hostname": platform.node(),
        "machine_id": read(Path("/etc/machine-id")),
        "virt": virt,
        "model": facts_probe.server_model(virt, container),
        "os": facts_probe.operating_system(read(Path("/etc/os-release"))),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": sys.version.split()[0],
        "root": becomes_root(),
        "reached_at": (os.environ.get("SSH_CONNECTION", "").split() + [""] * 3)[2],
        "over_ipv4": any(own for name, own in addresses().items() if name != "lo"),
        "network": network_services(),
        **processors.collect(),
        "gpu_names": names,
        "gpus": gpus(),
        "accelerators": accelerators(),
        "ports": ports(),
        "rdma_devices": [device["name"] for device in facts_probe.rdma_devices()],
        "belongings": belongings(),
    }


def main() -> None:
    """Print the document as one line."""
    print(json.dumps(collect(), sort_keys=True), flush=True)


if __name__ == "__main__":
    main()
