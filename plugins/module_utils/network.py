"""Who configures a node's network ports: files of netplan, systemd-networkd, NetworkManager and ifupdown.

Of each file only what decides is kept (ports, DHCP, addresses, the bond or bridge that takes the port), never a secret.
Runs on nodes: Python 3.9, standard library.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.network_match import Pairs, mac, matches, own_macs

#: What every file of role fabric has in its name.
OURS = "elastic-ai-"
#: Folders of systemd.network(5), the first one first: a file of the same name in a later one is not read.
NETWORKD = ("etc/systemd/network", "run/systemd/network", "usr/local/lib/systemd/network", "usr/lib/systemd/network")
#: Folders of netplan(5), the last one wins.
NETPLAN = ("lib/netplan", "etc/netplan", "run/netplan")
KEYFILES = (
    "etc/NetworkManager/system-connections",
    "run/NetworkManager/system-connections",
    "usr/lib/NetworkManager/system-connections",
)
IFCFG = "etc/sysconfig/network-scripts"
#: Copies that editors and package managers leave, which nobody reads.
COPIES = ("~", ".bak", ".orig", ".rpmnew", ".rpmorig", ".rpmsave", ".swp", ".dpkg-old", ".dpkg-dist", ".dpkg-new")
#: How another interface takes a port, in the words of systemd.network(5) and of NetworkManager's keyfiles.
MASTERS = ("Bond", "Bridge", "VRF", "master", "controller")
#: Sections of a keyfile with the address of a port's hardware: by their names and by their older ones.
WIRED = ("ethernet", "802-3-ethernet", "infiniband")
NO = ("no", "false", "off", "0", "n", "f", "none")


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


def unit(file: Path, root: Path) -> dict[str, Pairs]:
    """Sections of a file of systemd-networkd with its drop-ins; a backslash continues a line."""
    folders = [root / folder / f"{file.name}.d" for folder in NETWORKD]
    more: dict[str, Path] = {}
    for folder in folders:
        for path in folder.glob("*.conf"):
            more.setdefault(path.name, path)
    found: dict[str, Pairs] = {}
    for path in (file, *(more[name] for name in sorted(more))):
        for name, pairs in sections(re.sub(r"\\\n\s*", " ", read(path))).items():
            found.setdefault(name, []).extend(pairs)
    return found


def netplan_origin(name: str, root: Path) -> str:
    """The files of netplan that the definition `name` stands in, "" without one: netplan merges them.

    A file of the same name in a later folder stands for the one before.
    """
    definition = re.compile(rf"(?:^\s+|[{{,]\s*)['\"]?{re.escape(name)}['\"]?\s*:", re.MULTILINE)
    files = {file.name: file for folder in NETPLAN for file in sorted((root / folder).glob("*.yaml"))}
    found = [files[one] for one in sorted(files) if definition.search(read(files[one]))]
    return ", ".join(f"/{file.relative_to(root)}" for file in found)


def _card(link: Mapping[str, Any], root: Path) -> tuple[str, str]:
    """Driver of a link and its place as udev names it (`pci-0000:3b:00.0`); "" of what is not known."""
    device = root / "sys/class/net" / str(link["ifname"]) / "device"
    address = device.resolve().name if device.exists() else ""
    place = f"pci-{address}" if re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address) else ""
    return (device / "driver").resolve().name if (device / "driver").exists() else "", place


def _since_empty(pairs: Pairs, wanted: str) -> list[str]:
    """Values of a key since it was last empty, which begins its list anew."""
    found: list[str] = []
    for key, value in pairs:
        if key == wanted:
            found = [*found, value] if value else []
    return found


def networkd_claims(links: Sequence[Mapping[str, Any]], root: Path) -> Iterator[dict[str, Any]]:
    """The file of systemd-networkd that applies to each link if role fabric has none there: the first by name."""
    files: dict[str, Path] = {}
    for folder in NETWORKD:
        for file in (root / folder).glob("*.network"):
            files.setdefault(file.name, file)
    parsed = [(files[name], unit(files[name], root)) for name in sorted(files) if OURS not in name]
    for link in links:
        driver, place = _card(link, root)
        for file, found in parsed:
            if not matches(found.get("Match", []), link, driver, place, root):
                continue
            network = found.get("Network", [])
            static = _since_empty(network, "Address") + values(found.get("Address", []), "Address")
            said = claim(
                str(link["ifname"]), "systemd-networkd", file, root,
                dhcp=any(word.lower() not in NO for word in values(network, "DHCP")[-1:]),
                addresses=static, member_of="".join(values(network, *MASTERS)[:1]),
            )  # fmt: skip
            rendered = re.fullmatch(r"10-netplan-(.+)\.network", file.name)
            origin = netplan_origin(rendered[1], root) if rendered else ""
            if rendered:
                said["manager"] = "netplan"
            if origin:
                said["file"] = origin
            yield said
            break


def _named(said: str, listed: Sequence[str]) -> bool:
    """Whether a list of [match] of a keyfile takes a name, driver or place: one optional pattern, all mandatory ones.

    NetworkManager's settings reference: `&` before a pattern makes it mandatory, `|` optional, `!` inverts it; `!name`
    alone is `&!name`, and `name` is `|name`.
    """
    optional, mandatory = [], []
    for text in listed:
        sign, pattern = (text[0], text[1:]) if text[0] in "&|" else ("&" if text[0] == "!" else "|", text)
        fits = fnmatch.fnmatchcase(said, pattern.lstrip("!")) != pattern.startswith("!")
        (mandatory if sign == "&" else optional).append(fits)
    return all(mandatory) and (not optional or any(optional))


def _profile_takes(found: Mapping[str, Pairs], link: Mapping[str, Any], root: Path) -> bool:
    """Whether a connection of NetworkManager is for this link by name, hardware address, driver or place."""
    split = lambda key: [one for text in values(found.get("match", []), key) for one in text.split(";") if one]  # noqa: E731
    names = values(found.get("connection", []), "interface-name")
    own = [mac(value) for kind in WIRED for value in values(found.get(kind, []), "mac-address")]
    driver, place = _card(link, root)
    tests = [
        (names, lambda: str(link["ifname"]) in names),
        (own, lambda: bool(own_macs(link) & set(own))),
        (split("interface-name"), lambda: _named(str(link["ifname"]), split("interface-name"))),
        (split("driver"), lambda: _named(driver, split("driver"))),
        (split("path"), lambda: _named(place, split("path"))),
    ]
    return link["ifname"] != "lo" and any(said for said, _ in tests) and all(fits() for said, fits in tests if said)


def keyfile_claims(links: Sequence[Mapping[str, Any]], root: Path) -> Iterator[dict[str, Any]]:
    """Connections of NetworkManager, in its own files and in those of the older form (ifcfg)."""
    seen: set[str] = set()
    for folder in KEYFILES:
        for file in sorted((root / folder).glob("*")):
            if OURS in file.name or not file.is_file() or file.name.startswith(".") or file.name.endswith(COPIES):
                continue
            if file.name in seen:  # the first folder's is read
                continue
            seen.add(file.name)
            found = sections(read(file))
            own, ipv4 = found.get("connection", []), found.get("ipv4", [])
            static = [_keyfile_address(value) for key, value in ipv4 if re.fullmatch(r"address(es)?\d*", key)]
            rendered = re.fullmatch(r"netplan-(.+)\.nmconnection", file.name)
            origin = netplan_origin(rendered[1], root) if rendered else ""
            for link in links:
                if _profile_takes(found, link, root):
                    said = claim(
                        link["ifname"], "NetworkManager", file, root, dhcp="auto" in values(ipv4, "method"),
                        addresses=static, member_of="".join(values(own, *MASTERS)[:1]),
                    )  # fmt: skip
                    yield {**said, "file": origin or said["file"]}
    for file in sorted((root / IFCFG).glob("ifcfg-*")):
        if not file.name.endswith(COPIES) and ":" not in file.name:
            yield from ifcfg_claims(file, links, root)


def _keyfile_address(value: str) -> str:
    """The address of `10.0.0.1/24,10.0.0.254`, and of the older form `10.0.0.1;24;10.0.0.254;`."""
    old = re.match(r"([0-9a-fA-F.:]+);(\d+)(?:;|$)", value)
    return f"{old[1]}/{old[2]}" if old else value.split(",")[0]


def shell_values(text: str) -> dict[str, str]:
    """Assignments of a file in the shell's form: quotes, `export`, comments behind a value."""
    found: dict[str, str] = {}
    for line in re.sub(r"\\\n", "", text).splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote that does not end
            words = [line.strip()]
        for word in words:
            key, equals, value = word.partition("=")
            if equals and re.fullmatch(r"\w+", key):
                found[key] = value
    return found


def ifcfg_claims(file: Path, links: Sequence[Mapping[str, Any]], root: Path) -> Iterator[dict[str, Any]]:
    """What a file of network-scripts configures, by DEVICE, by HWADDR, or else by its name."""
    said = shell_values(read(file))
    hardware, name = mac(said.get("HWADDR", "")), said.get("DEVICE", "")
    if not name and not hardware:
        name = file.name[len("ifcfg-") :]
    static = []
    for number in [key[6:] for key in said if re.fullmatch(r"IPADDR\d*", key)]:
        address, length = said.get(f"IPADDR{number}"), said.get(f"PREFIX{number}") or said.get(f"NETMASK{number}")
        if address:
            static.append(f"{address}/{prefix(length)}" if length else address)
    for link in links:
        fits = name in ("", str(link["ifname"])) and (not hardware or hardware in own_macs(link))
        if fits and link["ifname"] != "lo":
            masters = ("MASTER", "BRIDGE", "TEAM_MASTER", "OVS_BRIDGE", "VRF")
            yield claim(
                link["ifname"], "NetworkManager", file, root,
                dhcp=said.get("BOOTPROTO", "").lower() in ("dhcp", "bootp"), addresses=list(dict.fromkeys(static)),
                member_of=next((said[key] for key in masters if said.get(key)), ""),
            )  # fmt: skip


def prefix(length: str) -> str:
    """A prefix length; of a netmask how many ones it has."""
    parts = length.split(".")
    return str(sum(bin(int(part)).count("1") for part in parts)) if len(parts) == 4 and length[0].isdigit() else length


def interfaces_files(root: Path) -> list[Path]:
    """/etc/network/interfaces and what it sources; where there is none, what lies in interfaces.d."""
    first = root / "etc/network/interfaces"
    if not first.is_file():
        return sorted(path for path in (root / "etc/network/interfaces.d").glob("*") if path.is_file())
    files, wanted = [], [first]
    while wanted:
        file = wanted.pop(0)
        if file in files or not file.is_file():
            continue
        files.append(file)
        for word, pattern in re.findall(r"^\s*(source|source-directory)\s+(\S+)", read(file), re.MULTILINE):
            place = root / pattern.lstrip("/") if pattern.startswith("/") else file.parent / pattern
            found = sorted(Path(place.anchor).glob(str(place.relative_to(place.anchor))))
            if word == "source-directory":  # names as run-parts(8) takes them
                found = [path for one in found for path in sorted(one.glob("*")) if re.fullmatch(r"[\w-]+", path.name)]
            wanted += found
    return files


def ifupdown_claims(links: Sequence[Mapping[str, Any]], root: Path) -> Iterator[dict[str, Any]]:
    """Interfaces of Debian's ifupdown, where it is installed."""
    if not any((root / folder / "ifup").exists() for folder in ("sbin", "usr/sbin")):
        return
    names = {str(link["ifname"]) for link in links} - {"lo"}
    for file in interfaces_files(root):
        text = re.sub(r"\\\n\s*", " ", read(file))
        for stanza in re.split(
            r"^[ \t]*(?=(?:iface|auto|allow-\S+|mapping|source|source-directory)\s)", text, flags=re.MULTILINE
        ):
            head = re.match(r"iface\s+(\S+)(?:[ \t]+inet6?[ \t]+(\S+))?", stanza)
            if not head:
                continue
            option = lambda *keys: re.findall(rf"^\s*(?:{'|'.join(keys)})\s+(.+?)\s*$", stanza, re.MULTILINE)  # noqa: B023, E731
            # ifupdown2 and ifupdown-ng need no family and method
            method = head[2] or ("dhcp" if "dhcp" in option("use") else "static" if option("address") else "manual")
            name, masks = head[1].split(":")[0], option("netmask")
            static = [one if "/" in one or not masks else f"{one}/{prefix(masks[0])}" for one in option("address")]
            master = (option("bond-master", "bond_master") or [""])[0]
            if name in names and (method not in ("manual", "loopback") or master):
                yield claim(name, "ifupdown", file, root, dhcp=method == "dhcp", addresses=static, member_of=master)
            taken = option("bond-slaves", "bond_slaves", "slaves", "bridge_ports", "bridge-ports")
            for port in sorted({port for listed in taken for port in listed.split()} & names):
                yield claim(port, "ifupdown", file, root, member_of=name)


def read_claims(links: Sequence[Mapping[str, Any]], root: Path = Path("/")) -> list[dict[str, Any]]:
    """Every file that configures a port of this node: port, manager, file, dhcp, addresses, member_of.

    `file` is what a person edits, `rendered` what the manager reads; they differ with netplan. `links` are those of
    `ip -details -json address show`.
    """
    return [found for sort in (networkd_claims, keyfile_claims, ifupdown_claims) for found in sort(links, root)]


def renamed(links: Sequence[Mapping[str, Any]], root: Path = Path("/")) -> dict[str, dict[str, str]]:
    """Ports that a .link file of udev calls otherwise than they are called now: from the next boot on they are.

    The first file by name that takes a link decides (systemd.link(5)); one that asks for more than is told apart here
    (by the kernel's first name, by a place where that is not known) decides nothing.
    """
    files: dict[str, Path] = {}
    for folder in (*NETWORKD, "lib/systemd/network"):
        for file in (root / folder).glob("*.link"):
            files.setdefault(file.name, file)
    found: dict[str, dict[str, str]] = {}
    for link in links:
        driver, place = _card(link, root)
        told = {"MACAddress", "PermanentMACAddress", "Driver", "Type", *(["Path"] if place else [])}
        for name in sorted(files):
            parts = unit(files[name], root)
            match, wanted = parts.get("Match", []), values(parts.get("Link", []), "Name")[-1:]
            if {key for key, _ in match} - told:
                continue
            if matches(match, link, driver, place, root):
                if wanted and wanted[0] != link["ifname"]:
                    path = f"/{files[name].relative_to(root)}"
                    found[str(link["ifname"])] = {"name": wanted[0], "file": path}
                break
    return found


def device_states(listing: str) -> dict[str, str]:
    """Port -> state, from `nmcli -t -f DEVICE,STATE device`: connected, disconnected, unmanaged, ..."""
    lines = (line.rsplit(":", 1) for line in listing.splitlines() if ":" in line)
    return {port.replace("\\:", ":"): state for port, state in lines}
