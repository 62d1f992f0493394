"""The lab's network: two bridges in a namespace of their own, a shaped link per node, a way out in user space.

The machine's own namespace gets one interface (its leg in the management network) and no rule, route or sysctl.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab.host import Host
from toolkit.lab.sh import run
from toolkit.lab.spec import (
    NETNS_PREFIX,
    NODE_NAME,
    SWITCH_MTU,
    LabSpec,
    NodeSpec,
    cache_root,
    counted_rate_bps,
    unpacked_root,
)
from validation.base.project import python_words

DNS = "10.0.2.3"  # slirp4netns's resolver, which asks whatever the machine itself asks
APT_CACHE_PORT = 3142
#: Tokens that a fabric link keeps while nobody sends, in seconds at its rate: so long the host, or the node's process,
#: may be stopped without the link's mean rate falling. What it lets through at once when a stream begins is over within
#: the second that a measurement leaves out. benchmarks/busy.py shows what other sizes do.
BUCKET_S = 0.025
#: What waits for tokens, in seconds at the rate. Less than the bucket would drop what follows a stall.
QUEUE_S = 0.050
ENDED_WITHIN_S = 5.0
"""The lab's own processes are waited for as long after they were killed."""
BMCS, LEAF, MIRROR = "toolkit.lab.bmc.serve", "toolkit.lab.leaf.serve", "toolkit.lab.mirrored"
FABRIC, MANAGEMENT = "br-fab", "br-mgmt"
LLDP_PASSES = 0x4000  # bit 14: 01-80-C2-00-00-0E, IEEE 802.1AB
#: Interface of a machine -> the tap that its virtual card is, in the machine's namespace.
TAPS = {"mgmt0": "tap-mgmt", "fab0": "tap-fab"}


def namespaces() -> list[str]:
    """Names of all network namespaces that labs made."""
    listed = json.loads(run(["ip", "-j", "netns", "list"]).stdout or "[]")
    return sorted(n["name"] for n in listed if n["name"].startswith(NETNS_PREFIX))


def namespaces_of(lab: str, listed: Sequence[str] | None = None) -> list[str]:
    """Names of one lab's network namespaces among all (or `listed`): a lab "a" does not own those of a lab "a-b"."""
    own = re.compile(f"{NETNS_PREFIX}{re.escape(lab)}(-{NODE_NAME})?")
    return [n for n in (namespaces() if listed is None else listed) if own.fullmatch(n)]


def free_index(taken: set[int]) -> int:
    """The first network index whose 10.77.x.0/24 neither another lab nor the machine's own routing uses."""
    routes = json.loads(run(["ip", "-j", "-4", "route", "show", "table", "all"]).stdout or "[]")
    used = [ipaddress.ip_network(r["dst"], strict=False) for r in routes if r["dst"][0].isdigit()]
    for index in range(200):
        net = ipaddress.ip_network(f"10.77.{index}.0/24")
        if index not in taken and not any(net.overlaps(u) for u in used):
            return index
    raise LabError("no free network for a lab in 10.77.0.0/16: the machine's own routes cover it")


def _batch(namespace: str | None, commands: list[str]) -> None:
    where = ["-n", namespace] if namespace else []
    run(["ip", *where, "-batch", "-"], stdin="\n".join(commands) + "\n")


def create_switch(spec: LabSpec) -> None:
    """The switch namespace with both bridges, the machine's leg, and NAT towards the way out."""
    ns, index = spec.switch_ns, spec.index
    run(["ip", "netns", "add", ns])
    _batch(
        ns,
        [
            "link set lo up",
            "link add br-mgmt type bridge",
            "link add br-fab type bridge",
            f"link set br-fab mtu {SWITCH_MTU} up",
            f"addr add 10.77.{index}.1/24 dev br-mgmt",
            "link set br-mgmt up",
        ],
    )
    leg = spec.host_interface
    # The alias tells which lab the leg belongs to, for `down` after a killed `up`.
    _batch(None, [f"link add {leg} type veth peer name m-machine netns {ns}", f"link set {leg} alias {ns}"])
    _batch(ns, ["link set m-machine master br-mgmt up"])
    _batch(None, [f"addr add 10.77.{index}.254/24 dev {leg}", f"link set {leg} up"])
    inside = ["nsenter", f"--net=/run/netns/{ns}", "--"]
    run([*inside, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
    run([*inside, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "tap0", "-j", "MASQUERADE"])


def attach_node(spec: LabSpec, node: NodeSpec) -> None:
    """The node's namespace with mgmt0 (addressed) and fab0 (bare: configuring it is the fabric role's work).

    A machine's namespace has the same links, and behind each a bridge with the tap that qemu opens. So a machine's
    fabric link is shaped, slowed and found like a container's.
    """
    ns, switch = spec.node_ns(node), spec.switch_ns
    run(["ip", "netns", "add", ns])
    _batch(
        switch,
        [
            f"link add m-{node.name} type veth peer name mgmt0 netns {ns}",
            f"link add f-{node.name} mtu {SWITCH_MTU} type veth peer name fab0 netns {ns}",
            f"link set m-{node.name} master br-mgmt up",
            f"link set f-{node.name} master br-fab up",
        ],
    )
    if node.kind == "vm":
        _batch(ns, [line for port in TAPS for line in _tap(port)])
        shape_link(spec, node, spec.rate_gbps)
        return
    # Where the node's own netplan has the address too: systemd-networkd 252 can't give a broadcast address to one that
    # has none, and says that the port failed.
    broadcast = " brd +" if spec.over else ""
    _batch(
        ns,
        [
            "link set lo up",
            f"addr add {spec.management_address(node)}/24{broadcast} dev mgmt0",
            "link set mgmt0 up",
            f"route add default via 10.77.{spec.index}.1",
        ],
    )
    shape_link(spec, node, spec.rate_gbps)


def _tap(port: str) -> list[str]:
    return [
        f"tuntap add dev {TAPS[port]} mode tap",
        f"link set {TAPS[port]} mtu {SWITCH_MTU}",
        f"link set {port} mtu {SWITCH_MTU}",
        f"link add br-{port} type bridge",
        f"link set br-{port} mtu {SWITCH_MTU} up",
        f"link set {TAPS[port]} master br-{port} up",
        f"link set {port} master br-{port} up",
        # a piece of wire, which LLDP's frames pass, and no switch, which keeps them
        f"link set br-{port} type bridge group_fwd_mask {LLDP_PASSES}",
    ]


def shape_link(spec: LabSpec, node: NodeSpec, rate_gbps: float) -> None:
    """Give the node's fabric link a line rate (10^9 bit/s), in both directions."""
    for sending in (False, True):
        shape_one_way(spec, node, rate_gbps, sending)


def shape_one_way(spec: LabSpec, node: NodeSpec, rate_gbps: float, sending: bool) -> None:
    """The same of what the node sends (`sending`), or receives, alone."""
    rate = counted_rate_bps(rate_gbps)
    burst = max(2 * 65536, int(rate / 8 * BUCKET_S))
    limit = max(512 * 1024, int(rate / 8 * QUEUE_S))
    namespace, device = (spec.node_ns(node), "fab0") if sending else (spec.switch_ns, f"f-{node.name}")
    shape = ["root", "tbf", "rate", f"{rate}bit", "burst", f"{burst}b", "limit", f"{limit}b"]
    run(["tc", "-n", namespace, "qdisc", "replace", "dev", device, *shape])


def plug(spec: LabSpec, node: NodeSpec, switch: str) -> None:
    """Plug the node's fabric cable into one of the lab's switches, FABRIC or MANAGEMENT."""
    mtu = [f"link set {switch} mtu {SWITCH_MTU}"] if switch == FABRIC else []
    _batch(spec.switch_ns, [f"link set f-{node.name} master {switch}", *mtu])


def start_services(spec: LabSpec, host: Host) -> None:
    """The way out (slirp4netns) and the package cache, as processes of the lab; waits until both serve."""
    ns = spec.switch_ns
    if spec.mirror:
        _start_mirror(spec, host)
        return
    slirp = ["slirp4netns", "--configure", "--disable-host-loopback", "--netns-type=path", f"/run/netns/{ns}", "tap0"]
    _spawn(spec, host, "slirp4netns", slirp)
    cache = [*python_words("toolkit.lab.aptcache"), ns, f"10.77.{spec.index}.1", str(APT_CACHE_PORT)]
    _spawn(spec, host, "aptcache", [*cache, str(cache_root() / "packages"), str(spec.vendor), str(unpacked_root())])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        listening = run(["nsenter", f"--net=/run/netns/{ns}", "--", "cat", "/proc/net/tcp", "/proc/net/route"]).stdout
        if "tap0" in listening and f":{APT_CACHE_PORT:04X} " in listening:
            return
        time.sleep(0.05)
    # Quoted, not pointed at: the logs go with the lab that is taken down now.
    said = [line for log in spec.dir.glob("*.log") for line in log.read_text(errors="replace").splitlines()[-3:]]
    raise LabError("the lab's uplink did not come up within 30 s: " + ("; ".join(said) or "no output"))


def _start_mirror(spec: LabSpec, host: Host) -> None:
    """In place of both: the mirror, served inside, and no way out."""
    from toolkit.lab import mirrored  # here, for few labs have one

    where = (f"10.77.{spec.index}.1", str(mirrored.PORT), spec.mirror)
    inside = ["nsenter", f"--net=/run/netns/{spec.switch_ns}", "--"]
    mirrored.deny(spec)
    _spawn(spec, host, "mirror", [*inside, *python_words(MIRROR), spec.switch_ns, *where])
    _answers(spec, "mirror", [("mirror", where[0])], mirrored.PORT)


def start_bmcs(spec: LabSpec, host: Host, folder: Path, addresses: Sequence[str], port: int) -> None:
    """The lab's emulated BMCs, as one process of the lab that answers from `folder`; waits until all answer."""
    _start_server(spec, host, "bmc", BMCS, folder)
    _answers(spec, "bmc", [("BMC", address) for address in addresses], port)


def start_leaf(spec: LabSpec, host: Host, folder: Path, address: str, port: int) -> None:
    """The lab's switch that announces its ports and shows its configuration, as one process; waits until it answers."""
    _start_server(spec, host, "leaf", LEAF, folder)
    _answers(spec, "leaf", [("switch", address)], port)


def _start_server(spec: LabSpec, host: Host, name: str, module: str, folder: Path) -> None:
    inside = ["nsenter", f"--net=/run/netns/{spec.switch_ns}", "--"]
    _spawn(spec, host, name, [*inside, *python_words(module), spec.switch_ns, str(folder)])


def _answers(spec: LabSpec, name: str, who: Sequence[tuple[str, str]], port: int) -> None:
    deadline = time.monotonic() + 30
    for what, address in who:
        while True:
            try:
                socket.create_connection((address, port), 1.0).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    said = (spec.dir / f"{name}.log").read_text(errors="replace").splitlines()[-3:]
                    raise LabError(
                        f"the {what} at {address} does not answer: {'; '.join(said) or 'no output'}"
                    ) from None
                time.sleep(0.1)


def _spawn(spec: LabSpec, host: Host, name: str, args: list[str]) -> None:
    if host.systemd:
        # A scope of its own: in the caller's session or service it would end with that, and the lab lives on.
        unit = f"--unit=elastic-ai-lab-{spec.name}-{name}"
        args = ["systemd-run", "--quiet", "--scope", "--collect", unit, "--", *args]
    with (spec.dir / f"{name}.log").open("wb") as log:
        subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def stop_services(lab: str) -> None:
    """End the lab's own processes, and return when they are gone, or after ENDED_WITHIN_S."""
    deadline = time.monotonic() + ENDED_WITHIN_S
    while left := _services(lab):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)


def _services(lab: str) -> list[int]:
    """They are found by what they were started with: a pid file could be missing or stale."""
    mark, found = f"{NETNS_PREFIX}{lab}".encode(), []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            words = (proc / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile
        slirp = words[0].endswith(b"slirp4netns") and b"/run/netns/" + mark in words
        cache = any(b"toolkit.lab.aptcache" in word for word in words[:3]) and mark in words
        served = any(one.encode() in word for one in (BMCS, LEAF, MIRROR) for word in words) and mark in words
        if slirp or cache or served:
            found.append(int(proc.name))
    return found


def delete_node(spec: LabSpec, node: NodeSpec) -> None:
    """Delete one node's namespace and its ports of the switch, at once: another node of that name may follow."""
    for port in (f"m-{node.name}", f"f-{node.name}"):
        run(["ip", "-n", spec.switch_ns, "link", "delete", port], check=False)
    run(["ip", "netns", "delete", spec.node_ns(node)])


def delete_networks(lab: str) -> None:
    """Delete the lab's namespaces; every link, address, rule and shape in them goes along."""
    # The kernel clears a deleted namespace in its own time; the leg must be gone when this returns.
    for link in json.loads(run(["ip", "-j", "link", "show", "type", "veth"]).stdout or "[]"):
        if link.get("ifalias") == f"{NETNS_PREFIX}{lab}":
            run(["ip", "link", "delete", link["ifname"]])
    for name in namespaces_of(lab):
        run(["ip", "netns", "delete", name])
