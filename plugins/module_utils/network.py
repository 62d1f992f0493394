"""Who configures a node's network ports: files of netplan, systemd-networkd, NetworkManager and ifupdown.

Of each file only what decides is kept (ports, DHCP, addresses, the bond or bridge that takes the port), never a secret.
Runs on nodes: Python 3.9, standard library.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Pairs = list[tuple[str, str]]

#: What every file of role fabric has in its name.
OURS = "elastic-ai-"
#: Folders of systemd.network(5), the first one first: a file of the same name in a later one is not read.
NETWORKD = ("etc/systemd/network", "run/systemd/network", "usr/local/lib/systemd/network", "usr/lib/systemd/network")
#: Folders of netplan(5), the last one wins.
NETPLAN = ("lib/netplan", "etc/netplan", "run/netplan")
KEYFILES = ("etc/NetworkManager/system-connections", "run/NetworkManager/system-connections")
IFCFG = "etc/sysconfig/network-scripts"
#: How another interface takes a port, in the words of systemd.network(5) and of NetworkManager's keyfiles.
MASTERS = ("Bond", "Bridge", "VRF", "master", "controller")


def sections(text: str) -> dict[str, Pairs]:
    """Keys and values of each section of an ini file, in order; keys may come more than once."""
    found: dict[str, Pairs] = {}
    current: Pairs = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            current = found.setdefault(stripped[1:-1], [])
        elif "=" in stripped and stripped[0] not in "#;":
            key, value = stripped.split("=", 1)
            current.append((key.strip(), value.strip()))
    return found


def values(pairs: Pairs, *keys: str) -> list[str]:
    """Values of these keys."""
    return [value for key, value in pairs if key in keys and value]


def read(path: Path) -> str:
    """Text of a file, "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def claim(port: str, manager: str, file: Path, root: Path, **more: Any) -> dict[str, Any]:
    """One file that configures one port."""
    said = {"dhcp": False, "addresses": [], "member_of": "", **more}
    path = f"/{file.relative_to(root)}"
    return {"port": port, "manager": manager, "file": path, "rendered": path, **said}


def matches(match: Pairs, link: Mapping[str, Any], driver: str) -> bool:
    """Whether a [Match] section of systemd.network(5) takes this link: every key has to.

    Keys that are not told apart here (Type, Path, Kind, ...) count as fitting, but for the loopback interface.
    """
    checks = {
        "Name": str(link["ifname"]),
        "OriginalName": str(link["ifname"]),
        "MACAddress": str(link.get("address", "")).lower(),
        "PermanentMACAddress": str(link.get("permaddr", link.get("address", ""))).lower(),
        "Driver": driver,
    }
    if not match or link["ifname"] == "lo":
        return False
    for key, listed in match:
        if key not in checks:
            continue
        patterns = listed.split() if key.endswith("Name") or key == "Driver" else listed.lower().split()
        inverted = bool(patterns) and patterns[0].startswith("!")
        patterns = [pattern.lstrip("!") for pattern in patterns]
        if any(fnmatch.fnmatchcase(checks[key], pattern) for pattern in patterns) == inverted:
            return False
    return True


def netplan_origin(name: str, root: Path) -> Path | None:
    """The file of netplan that the definition `name` stands in."""
    definition = re.compile(rf"^\s+['\"]?{re.escape(name)}['\"]?\s*:", re.MULTILINE)
    files = [file for folder in NETPLAN for file in sorted((root / folder).glob("*.yaml"))]
    found = [file for file in files if definition.search(read(file))]
    return found[-1] if found else None


def networkd_claims(links: Sequence[Mapping[str, Any]], root: Path) -> Iterator[dict[str, Any]]:
    """The file of systemd-networkd that applies to each link if role fabric has none there: the first by name."""
    files: dict[str, Path] = {}
    for folder in NETWORKD:
        for file in (root / folder).glob("*.network"):
            files.setdefault(file.name, file)
    parsed = [(files[name], sections(read(files[name]))) for name in sorted(files) if OURS not in name]
    for link in links:
        device = root / "sys/class/net" / str(link["ifname"]) / "device/driver"
        driver = device.resolve().name if device.exists() else ""
        for file, found in parsed:
            if not matches(found.get("Match", []), link, driver):
                continue
            network = found.get("Network", [])
            static = values(network, "Address") + values(found.get("Address", []), "Address")
            said = claim(
                str(link["ifname"]), "systemd-networkd", file, root,
                dhcp=any(word not in ("no", "false", "none") for word in values(network, "DHCP")),
                addresses=static, member_of="".join(values(network, *MASTERS)[:1]),
            )  # fmt: skip
            rendered = re.fullmatch(r"10-netplan-(.+)\.network", file.name)
            origin = netplan_origin(rendered[1], root) if rendered else None
            if rendered:
                said["manager"] = "netplan"
            if origin is not None:
                said["file"] = f"/{origin.relative_to(root)}"
            yield said
            break


def keyfile_claims(links: Sequence[Mapping[str, Any]], root: Path) -> Iterator[dict[str, Any]]:
    """Connections of NetworkManager, in its own files and in those of the older form (ifcfg)."""
    for folder in KEYFILES:
        for file in sorted((root / folder).glob("*")):
            if OURS in file.name or not file.is_file():
                continue
            found = sections(read(file))
            own, ipv4 = found.get("connection", []), found.get("ipv4", [])
            names = values(own, "interface-name") + values(found.get("match", []), "interface-name")
            patterns = [pattern for listed in names for pattern in listed.strip(";").split(";")]
            macs = [value.lower() for value in values(found.get("ethernet", []), "mac-address")]
            static = [value.split(",")[0] for key, value in ipv4 if re.fullmatch(r"address(es)?\d*", key)]
            for link in links:
                mac = str(link.get("permaddr", link.get("address", ""))).lower()
                if any(fnmatch.fnmatchcase(link["ifname"], pattern) for pattern in patterns) or mac in macs:
                    yield claim(
                        link["ifname"], "NetworkManager", file, root, dhcp="auto" in values(ipv4, "method"),
                        addresses=static, member_of="".join(values(own, *MASTERS)[:1]),
                    )  # fmt: skip
    for file in sorted((root / IFCFG).glob("ifcfg-*")):
        said = {key: value.strip("\"'") for key, value in sections(f"[own]\n{read(file)}")["own"]}
        for link in links:
            if said.get("DEVICE", file.name[6:]) == link["ifname"] != "lo":
                static = [f"{said['IPADDR']}/{said['PREFIX']}"] if said.get("IPADDR") and said.get("PREFIX") else []
                yield claim(
                    link["ifname"], "NetworkManager", file, root, dhcp=said.get("BOOTPROTO") == "dhcp",
                    addresses=static, member_of=said.get("MASTER", said.get("BRIDGE", "")),
                )  # fmt: skip


def ifupdown_claims(links: Sequence[Mapping[str, Any]], root: Path) -> Iterator[dict[str, Any]]:
    """Interfaces of Debian's ifupdown, where it is installed."""
    if not any((root / folder / "ifup").exists() for folder in ("sbin", "usr/sbin")):
        return
    names = {str(link["ifname"]) for link in links}
    for file in (root / "etc/network/interfaces", *sorted((root / "etc/network/interfaces.d").glob("*"))):
        for stanza in re.split(r"^(?=iface\s)", read(file), flags=re.MULTILINE):
            head = re.match(r"iface\s+(\S+)\s+inet\s+(\S+)", stanza)
            if head and head[1] in names - {"lo"} and head[2] not in ("manual", "loopback"):
                static = re.findall(r"^\s+address\s+(\S+)", stanza, re.MULTILINE)
                master = re.findall(r"^\s+bond-master\s+(\S+)", stanza, re.MULTILINE)
                yield claim(
                    head[1], "ifupdown", file, root, dhcp=head[2] == "dhcp", addresses=static,
                    member_of="".join(master[:1]),
                )  # fmt: skip


def read_claims(links: Sequence[Mapping[str, Any]], root: Path = Path("/")) -> list[dict[str, Any]]:
    """Every file that configures a port of this node: port, manager, file, dhcp, addresses, member_of.

    `file` is what a person edits, `rendered` what the manager reads; they differ with netplan. `links` are those of
    `ip -json address show`.
    """
    return [found for sort in (networkd_claims, keyfile_claims, ifupdown_claims) for found in sort(links, root)]


def device_states(listing: str) -> dict[str, str]:
    """Port -> state, from `nmcli -t -f DEVICE,STATE device`: connected, disconnected, unmanaged, ..."""
    lines = (line.rsplit(":", 1) for line in listing.splitlines() if ":" in line)
    return {port.replace("\\:", ":"): state for port, state in lines}
