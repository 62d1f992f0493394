"""What preflight says of network ports that another manager than role fabric's configures already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.fabric import NETWORKMANAGER, PREFIX
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.layers import lower_interfaces

Json = Mapping[str, Any]

#: How a port is taken out of the hands of its manager.
CURES = {
    "netplan": "take {ports} out of {file}, then: netplan apply",
    "systemd-networkd": "take {ports} out of {file}, then: networkctl reload",
    "NetworkManager": "remove {file}, then: nmcli connection reload",
    "ifupdown": "ifdown {ports}, and take {ports} out of {file}",
}
#: The managers whose files systemd-networkd reads.
OF_NETWORKD = ("netplan", "systemd-networkd")


def _by_file(claims: Sequence[Json]) -> Iterator[tuple[Json, str]]:
    """One claim of each file with the ports that it names, so that eight ports of one file are one sentence."""
    for first in {(claim["file"], claim["member_of"]): claim for claim in reversed(claims)}.values():
        same = [c["port"] for c in claims if (c["file"], c["member_of"]) == (first["file"], first["member_of"])]
        yield first, ", ".join(dict.fromkeys(same))


def _cure(claim: Json, ports: str) -> str:
    return CURES[claim["manager"]].format(ports=ports, file=claim["file"])


def _sorted(observed: Json, wanted: Json) -> dict[str, list[Json]]:
    """Claims on the declared ports by what they mean for role fabric."""
    own = wanted["port_manager"]
    declared = {port["interface"]: str(port["address"]) for port in wanted["fabric_ports"]}
    declared |= {below["interface"]: "" for below in lower_interfaces(wanted["fabric_ports"])}
    running = {*observed["network"]["running"], "ifupdown"}
    found: dict[str, list[Json]] = {"foreign": [], "member": [], "static": [], "first": [], "outranked": []}
    for claim in observed["network"]["claims"]:
        if claim["port"] not in declared:
            continue
        manager = "systemd-networkd" if claim["manager"] in OF_NETWORKD else claim["manager"]
        if manager != own:
            # NetworkManager on a system of systemd-networkd is told by the ports that it holds, not by its files.
            if manager in running and manager != NETWORKMANAGER:
                found["foreign"].append(claim)
        elif claim["member_of"]:
            found["member"].append(claim)
        elif claim["addresses"] and declared[claim["port"]] not in claim["addresses"]:
            found["static"].append(claim)
        elif manager != NETWORKMANAGER and claim["rendered"].rpartition("/")[2] < PREFIX:
            found["first"].append(claim)
        else:
            found["outranked"].append(claim)
    return found


def claim_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Ports that somebody else configures, each file once, with what to do."""
    own = wanted["port_manager"]
    network, found = observed["network"], _sorted(observed, wanted)
    for claim, ports in _by_file(found["foreign"]):
        yield (
            f"fabric port {ports} is configured by {claim['manager']} ({claim['file']}), and role fabric does it "
            f"through {own}: {_cure(claim, ports)}"
        )
    for claim, ports in _by_file(found["member"]):
        yield (
            f"fabric port {ports} belongs to {claim['member_of']} by {claim['file']}: {_cure(claim, ports)}; or "
            f"declare {claim['member_of']} as the fabric port"
        )
    for claim, ports in _by_file(found["static"]):
        yield (
            f"fabric port {ports} has the address {', '.join(claim['addresses'])} by {claim['file']}, and another one "
            f"in the inventory: {_cure(claim, ports)}; or declare that address"
        )
    for claim, ports in _by_file(found["first"]):
        yield (
            f"fabric port {ports} is configured by {claim['file']}, whose name comes before the {PREFIX}* of role "
            f"fabric, so that systemd-networkd takes that file: {_cure(claim, ports)}; or give it a later name"
        )
    states = network["networkmanager"]
    names = [port["interface"] for port in (*wanted["fabric_ports"], *lower_interfaces(wanted["fabric_ports"]))]
    held = [name for name in names if states.get(name, "unmanaged") != "unmanaged"]
    if own != NETWORKMANAGER and held:
        files = {claim["file"] for claim in network["claims"] if claim["manager"] == NETWORKMANAGER}
        of = ", ".join(sorted(files)) or "no file: a connection of its own making"
        yield (
            f"fabric port {', '.join(held)} is held by NetworkManager ({of}), and role fabric configures it through "
            f"{own}: write the lines [keyfile] and unmanaged-devices={';'.join(f'interface-name:{n}' for n in held)} "
            f"to /etc/NetworkManager/conf.d/90-fabric.conf, then: nmcli general reload"
        )
    if own == NETWORKMANAGER and wanted["fabric_ports"] and NETWORKMANAGER not in network["running"]:
        yield (
            "NetworkManager does not run, and role fabric configures the ports through it on this system: "
            "dnf install NetworkManager, then: systemctl enable --now NetworkManager"
        )


def claim_notes(observed: Json, wanted: Json) -> list[str]:
    """Files that name a fabric port and that role fabric's own outrank."""
    renames = observed["network"].get("renames") or {}  # of nodes that were recorded before: not read
    names = [port["interface"] for port in (*wanted["fabric_ports"], *lower_interfaces(wanted["fabric_ports"]))]
    notes = [
        f"fabric port {name} is called {renames[name]['name']} from the next boot on, by {renames[name]['file']}: "
        f"declare that name then, or take Name= out of the file"
        for name in names
        if name in renames
    ]
    return notes + [
        f"{claim['file']} ({claim['manager']}) configures fabric port {ports} too; the files of role fabric outrank it"
        for claim, ports in _by_file(_sorted(observed, wanted)["outranked"])
    ]
