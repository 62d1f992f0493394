"""What the RDMA probes share: the device behind a fabric port, its GID, its counters, and what a tool's failure means.

A verbs tool that prints a rate proves little: it may have taken another device than the port's, or a RoCE v1 GID that
no router carries. So every probe finds the device from the port, names it and its GID to the tool, and reads the
device's own counters before and after; the parsers refuse a result that these do not bear out.

`stdout`: the tool's own (ibv_rc_pingpong, perftest, ucx_perftest). `facts`: device, rdma_port, gid_index, gid,
roce_version, link_layer, port_rate, memlock, counters (by how much each moved that did, by "hw_counters/NAME"),
sent_packets, received_packets, sent_bytes, received_bytes (as far as the device counts them), fault (a code, where it
failed), json (perftest's report, where it writes one), active_mtu and cm_mode (first light); `peer`, added by the
controller, holds the same of the serving end.
"""

from __future__ import annotations

import ipaddress
import math
import re
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from validation.base.counting import number_of
from validation.probes import ProbeDoc
from validation.probes.rdma_ports_sysfs import represented
from validation.probes.tool import Ran, document, run_tool

CLASS = Path("/sys/class")
COUNTER_SETTLE_S = 0.05  # drivers answer from a cache of 10 ms (lifespan in hw_counters)
WORD_BYTES = 4  # port_xmit_data and port_rcv_data count 32-bit words (InfiniBand specification, volume 1, 16.1.3.5)
PORT_DOWN_STATES = ("NOP", "DOWN", "INIT", "ARMED")

# Counters of what a port carried, by driver: (sent, received, what they count).
TRAFFIC = (
    ("counters/port_xmit_packets", "counters/port_rcv_packets", "packets"),  # mlx5, mlx4, hfi1
    ("counters/port_xmit_data", "counters/port_rcv_data", "words"),
    ("hw_counters/sent_pkts", "hw_counters/rcvd_pkts", "packets"),  # rxe
    ("hw_counters/tx_pkts", "hw_counters/rx_pkts", "packets"),  # bnxt_re
    ("hw_counters/tx_bytes", "hw_counters/rx_bytes", "bytes"),
    ("hw_counters/ip4OutPkts", "hw_counters/ip4InPkts", "packets"),  # irdma
    ("hw_counters/ip4OutOctets", "hw_counters/ip4InOctets", "bytes"),
)

# What the tools say, and the fault that it shows. First match counts; words of the tools, looked up in their sources.
SAID = (
    (r"Couldn't (allocate|register) MR|Failed to create MR|failed to create mr", "memlock"),
    (r"failed to allocate .*memory|ENOMEM|Cannot allocate memory", "memlock"),
    (r"No IB devices found|IB device \S+ not found|Did not detect devices|Unable to find the Infiniband", "no-device"),
    (r"no such device|no such transport|Destination is unreachable", "no-device"),
    (r"Port number \d+ state is (?!Active)|Couldn't get local LID|port .* is not active", "port-down"),
    (r"can't read sgid|Failed to modify QP( \S+)? to RTR|Couldn't connect to remote QP", "path"),
    (r"GID types|gid index", "gid"),
    (r"transport retry counter exceeded|Failed status 12|retry exceeded|Endpoint timeout|timed out", "lost"),
    (r"RNR retry counter exceeded|Failed status 13", "not-ready"),
    (r"Completion with error|Failed status", "completion"),
    (r"ADDR_ERROR|ROUTE_ERROR|rdma_resolve|CM event|Unable to connect \(retries", "connect"),
    (r"Couldn't connect to|[Cc]onnection refused", "connect"),
    (r"[Rr]ead remote address|exchange data|Couldn't read|socket|write to|Couldn't write|[Cc]onnection (reset|closed)",
     "other-end"),
)  # fmt: skip

WORDS = {
    "memlock": "the limit of lockable memory is too low",
    "gpu-memory": "the adapter cannot register the GPU's memory (nvidia_peermem, DMA-BUF, the IOMMU)",
    "no-device": "the tool finds no such RDMA device",
    "port-down": "the RDMA port is not active",
    "path": "the connection cannot be set up: GID or MTU of the two ends do not fit",
    "gid": "the GIDs of the two ends do not fit",
    "lost": "packets were sent again and again and never acknowledged",
    "not-ready": "the receiver never had a buffer ready",
    "completion": "an RDMA operation failed",
    "connect": "the connection to the other end cannot be opened",
    "other-end": "the other end went away",
}


class Device(NamedTuple):
    """An RDMA port and the GID to use there. `gid_type` is "RoCE v2", "IB/RoCE v1", or "" on InfiniBand."""

    name: str
    port: int
    interface: str
    link_layer: str
    state: str
    rate: str
    gid_index: int
    gid: str
    gid_type: str

    @property
    def folder(self) -> Path:
        """Its port's folder in sysfs."""
        return CLASS / "infiniband" / self.name / "ports" / str(self.port)

    def facts(self) -> dict[str, Any]:
        """What a result says of the device."""
        return {
            "device": self.name,
            "rdma_port": self.port,
            "gid_index": self.gid_index,
            "gid": self.gid,
            "roce_version": self.gid_type,
            "link_layer": self.link_layer,
            "port_rate": self.rate,
        }


class Fault(Exception):
    """Why RDMA does not work at this end. `code` for the judge, `str(e)` for people."""

    def __init__(self, code: str, words: str) -> None:
        """`code` is one of `WORDS` or of this module's own: no-gid, gid-type, link-layer, mtu, counters."""
        super().__init__(words)
        self.code = code


@dataclass
class Ends:
    """What both ends of a measurement are asked for. Each is told its own port and address, and the other's address."""

    interface: str  # this node's fabric port
    address: str  # its address
    peer: str  # the other end's fabric address
    port: int  # where the two tools find each other
    transport: Literal["roce", "ib", "pvrdma"]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # an empty slot of the GID table answers with an error
        return ""


def _gid(text: str) -> ipaddress.IPv6Address | None:
    try:
        found = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return found if int(found) else None


def _address_gid(address: str) -> ipaddress.IPv6Address:
    """The GID that RoCE makes of an address: IPv4 is mapped into IPv6 (InfiniBand specification, annex A17)."""
    found = ipaddress.ip_address(address)
    return ipaddress.IPv6Address(f"::ffff:{found}") if found.version == 4 else ipaddress.IPv6Address(str(found))


def _by_number(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), key=lambda p: int(p.name))
    except OSError:
        return []


def ports_of(interface: str) -> list[tuple[str, int]]:
    """(device, port) of every RDMA port that stands on a network interface.

    Soft-RoCE names its interface itself, also while the interface is down and the table of GIDs may be empty. The
    table has 1024 entries, a second's reading on an emulated machine; those in use come first.
    """
    found = []
    for folder in sorted((CLASS / "infiniband").glob("*/ports/*")):
        parent = _read(folder.parents[1] / "parent")
        ndevs = folder / "gid_attrs" / "ndevs"
        if parent == interface or (not parent and any(_read(ndev) == interface for ndev in _by_number(ndevs))):
            found.append((folder.parents[1].name, int(folder.name)))
    # IPoIB interfaces are in no GID table: they name their device, and their port counts from 0
    card = CLASS / "net" / interface / "device" / "infiniband"
    if not found and card.is_dir() and not represented(interface, CLASS.parent):
        number = _read(CLASS / "net" / interface / "dev_port") or "0"
        found = [(device.name, int(number) + 1) for device in sorted(card.iterdir())]
    return found


def look(interface: str, address: str, transport: str) -> Device:
    """The device, port and GID behind a fabric port; Fault where RDMA cannot work there."""
    places = ports_of(interface)
    if not places:
        others = ", ".join(sorted(p.name for p in (CLASS / "infiniband").glob("*")))
        raise Fault("no-device", f"no RDMA device on {interface}" + (f" (there is {others})" if others else ""))
    name, port = places[0]
    folder = CLASS / "infiniband" / name / "ports" / str(port)
    layer = _read(folder / "link_layer")
    state = _read(folder / "state").partition(": ")[2]
    if state in PORT_DOWN_STATES:
        hint = "; no subnet manager?" if layer == "InfiniBand" and state == "INIT" else ""
        raise Fault("port-down", f"RDMA port {name}/{port} on {interface} is {state}, not ACTIVE{hint}")
    wanted = "InfiniBand" if transport == "ib" else "Ethernet"
    if layer and layer != wanted:
        raise Fault("link-layer", f"RDMA port {name}/{port} on {interface} is {layer}, the fabric is {wanted}")
    index, gid, kind = _choose(folder, interface, address, transport)
    return Device(name, port, interface, layer, state, _read(folder / "rate"), index, gid, kind)


def _choose(folder: Path, interface: str, address: str, transport: str) -> tuple[int, str, str]:
    """Index, GID and type of the entry to use: on RoCE that of the port's own address, version 2."""
    if transport == "ib":
        return 0, _read(folder / "gids" / "0"), ""
    mine = _address_gid(address)
    seen = []
    for entry in _by_number(folder / "gids"):
        gid = _gid(_read(entry))
        ndev = _read(folder / "gid_attrs" / "ndevs" / entry.name)
        if gid != mine or ndev != interface:
            continue
        kind = _read(folder / "gid_attrs" / "types" / entry.name)
        if kind == "RoCE v2":
            return int(entry.name), str(gid), kind
        seen.append(f"index {entry.name} is {kind or 'of no type'}")
    if seen:
        raise Fault("gid-type", f"{interface}: no RoCE v2 GID for {address} ({', '.join(seen)})")
    raise Fault("no-gid", f"{interface}: its GID table has no entry for {address}")


def cm_mode(device: Device) -> str:
    """The RoCE version that rdma_cm takes on this port, where configfs says so; else ""."""
    return _read(Path("/sys/kernel/config/rdma_cm", device.name, "ports", str(device.port), "default_roce_mode"))


def counters(device: Device) -> dict[str, int]:
    """Every counter of the port, as "hw_counters/sent_pkts"."""
    found = {}
    for group in ("counters", "hw_counters"):
        for path in (device.folder / group).glob("*"):
            text = _read(path)
            if path.name != "lifespan" and text.isdigit():
                found[f"{group}/{path.name}"] = int(text)
    return found


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """How far each counter went; one that was cleared in between is left out."""
    return {key: after[key] - value for key, value in before.items() if key in after and after[key] >= value}


def traffic(deltas: Mapping[str, int]) -> dict[str, int]:
    """What the device says that it carried: sent_packets, received_packets, sent_bytes, received_bytes, as known."""
    found: dict[str, int] = {}
    for sent, received, unit in TRAFFIC:
        if sent in deltas and received in deltas:
            scale = WORD_BYTES if unit == "words" else 1
            name = "packets" if unit == "packets" else "bytes"
            found.setdefault(f"sent_{name}", deltas[sent] * scale)
            found.setdefault(f"received_{name}", deltas[received] * scale)
    return found


def counted(device: Device, before: Mapping[str, int]) -> dict[str, Any]:
    """Facts from the counters since `before`: all that moved, and what was carried."""
    time.sleep(COUNTER_SETTLE_S)
    deltas = grown(before, counters(device))
    return {"counters": {key: value for key, value in sorted(deltas.items()) if value}, **traffic(deltas)}


def active_mtu(device: Device) -> tuple[int, str]:
    """The port's RDMA MTU in bytes (0 = not known), and what ibv_devinfo said: sysfs does not have it."""
    ran = run_tool(["ibv_devinfo", "-d", device.name, "-i", str(device.port)], timeout_s=20)
    match = re.search(r"active_mtu:\s+(\d+)", ran.stdout)
    return int(match.group(1)) if match else 0, ran.stdout + ran.stderr


def memlock() -> str:
    """This session's limit of lockable memory, in bytes or "unlimited"."""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def explain(ran: Ran) -> Fault | None:
    """What a tool's failure shows; None where the tool ended well."""
    if ran.returncode == 0:
        return None
    if ran.returncode in (126, 127):
        return Fault("tool-missing", ran.stderr.strip() or f"{ran.command[0]} cannot be started")
    said = ran.stderr + "\n" + ran.stdout
    for pattern, code in SAID:
        match = re.search(pattern, said)
        if match:
            line = next(line for line in said.splitlines() if match.group(0) in line or re.search(pattern, line))
            if code == "memlock" and any(word.startswith("--use_cuda") for word in ran.command):
                code = "gpu-memory"
            limit = f" (limit {number_of(memlock(), 'byte')})" if code == "memlock" else ""
            return Fault(code, f"{WORDS[code]}{limit}: {line.strip()}")
    if ran.returncode < 0:
        return Fault("stopped", f"ended by signal {-ran.returncode} before its end")
    return Fault("tool", ran.failure or "failed")


def packets(size_bytes: int, mtu_bytes: int) -> int:
    """Packets of one message."""
    return max(1, math.ceil(size_bytes / mtu_bytes))


class Session(NamedTuple):
    """One run of a tool on a device: its end, facts for the result, and the fault, if any."""

    ran: Ran
    facts: dict[str, Any]
    error: str | None


def fault_facts(fault: Fault | None) -> dict[str, Any]:
    """The fault's code, for the judge."""
    return {"fault": fault.code} if fault is not None else {}


def failed(tool: str, fault: Fault, facts: Mapping[str, Any]) -> Session:
    """A session that could not start."""
    return Session(Ran([tool], 0, "", ""), {**facts, **fault_facts(fault)}, str(fault))


def run_on(device: Device, command: Sequence[str], facts: Mapping[str, Any], env: Mapping[str, str]) -> Session:
    """Run a tool to its end between two readings of the device's counters."""
    before = counters(device)
    ran = run_tool(command, env=dict(env) if env else None)
    return ended(device, before, ran, facts)


def ended(device: Device, before: Mapping[str, int], ran: Ran, facts: Mapping[str, Any]) -> Session:
    """What is known when the tool has ended."""
    fault = explain(ran)
    state = _read(device.folder / "state").partition(": ")[2]
    if fault is not None and state in PORT_DOWN_STATES:
        words = f"RDMA port {device.name}/{device.port} on {device.interface} went {state} in mid-run"
        fault = Fault("port-down", f"{words} ({fault})")
    known = {**facts, **device.facts(), "memlock": memlock(), **counted(device, before), **fault_facts(fault)}
    return Session(ran, known, str(fault) if fault else None)


def report(kind: str, tool: str, measure: Callable[[], Session]) -> ProbeDoc:
    """The probe's document. What the failure means says more than the tool's last line, so it goes first."""
    sessions: list[Session] = []

    def work() -> tuple[Ran, dict[str, Any], str | None]:
        sessions.append(measure())
        return sessions[0].ran, sessions[0].facts, sessions[0].error

    # none of these tools names its release in its report; the node's packages are the facts' business
    doc = document(kind, tool, work, lambda ran: "")
    if sessions and sessions[0].error:
        doc["error"] = sessions[0].error
    return doc
