"""What preflight refuses of a node's addresses: that of its management, and those of fabric ports."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.fabric import fabric_links, no_carrier
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.layers import is_made

Json = Mapping[str, Any]

#: Kernel drivers of USB network functions: what a BMC shows to its host (iDRAC's "OS to iDRAC Pass-through").
USB_NETWORK_DRIVERS = frozenset({"cdc_eem", "cdc_ether", "cdc_ncm", "cdc_subset", "rndis_host"})


def address_owners(names: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Address -> the hosts of the inventory that have it, as Ansible's own or that of a fabric port."""
    owners: dict[str, list[str]] = {}
    for name in names:
        own = hostvars[name]
        ports = [port["address"] for port in own.get("fabric_ports") or []]
        for address in [own.get("ansible_host", name), *ports]:
            owners.setdefault(str(address).split("/")[0], []).append(name)
    return owners


def is_ipv6(text: str) -> bool:
    """Whether an address is an IPv6 one, in brackets or with a zone too; a name is none."""
    try:
        return ipaddress.ip_address(str(text).strip("[]").partition("%")[0]).version == 6
    except ValueError:
        return False


def is_address(text: Any) -> bool:
    """Whether it is an IPv4 address or a name, as Slurm, the table of hosts and the firewall take them."""
    if re.fullmatch(r"[0-9.]+", str(text)):
        try:
            return bool(ipaddress.IPv4Address(str(text)))
        except ValueError:
            return False
    return isinstance(text, str) and re.fullmatch(r"\w[\w.-]*", text) is not None


def _is_of_ipv6(text: str) -> bool:
    """Of `2001:db8::31`, `[::]:9090`, `::`."""
    return is_ipv6(text) or (text.startswith("[") and is_ipv6(text.partition("]")[0]))


def listen_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Addresses of IPv6 at which services of the site would answer, and where nobody would ask them."""
    for name, value in (wanted.get("listens") or {}).items():
        if _is_of_ipv6(str(value or "").strip()):
            yield (
                f"{name} is {value}, an IPv6 address, and services and the firewall are set up for IPv4 in this "
                "release: give an IPv4 address, or leave it out"
            )


def time_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Time servers that chrony would not reach, by how they are written or over IPv6, and networks it would not take.

    Over IPv6 they are asked as over IPv4: a node asks, and the firewall lets answers in.
    """
    time = wanted.get("time") or {}
    servers = [str(one) for one in time.get("servers") or []]
    for one in servers:
        if not is_address(one) and ("[" in one or not is_ipv6(one)):
            yield (
                f"base_chrony_servers has {one!r}, which is neither an address nor a name: write an IPv6 address "
                "without brackets, and no prefix, port or options"
            )
    for network in time.get("allow") or []:
        if not _is_network(str(network)):
            yield f"base_chrony_allow has {network!r}, which is no network of IPv4 or IPv6: write 10.0.0.0/16 or all"
    if servers and all(is_ipv6(one) for one in servers) and observed.get("ipv6") == []:
        yield (
            f"its time servers ({', '.join(servers)}) are reached over IPv6, and it has no IPv6 address: give "
            "base_chrony_servers one that it reaches, or the node an address"
        )


def time_notes(observed: Json, wanted: Json) -> list[str]:
    """Time servers that give no time. Nodes of the site are not asked: they serve it once they are set up."""
    servers = (wanted.get("time") or {}).get("servers")
    if servers and observed.get("in_container"):
        return ["its time servers were not asked: it is a container, and has its host's clock"]
    said = observed.get("time_servers") or {}
    silent = [f"{name}: {why}" for name, why in said.items() if why]
    if not silent:
        return []
    which = "none of its time servers gives the time" if len(silent) == len(said) else "a time server gives no time"
    after = "it would keep a time of its own: " if len(silent) == len(said) else ""
    return [
        f"{which} ({'; '.join(silent)}): {after}see that the node reaches it by UDP port 123, or name another one "
        "(base_chrony_servers)"
    ]


def _is_network(text: str) -> bool:
    """Of `10.0.0.0/16`, `2001:db8::/32`, `all`."""
    try:
        return text == "all" or bool(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return False


def address_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Interfaces and addresses as the inventory declares them."""
    if observed["links_error"]:
        yield f"cannot list the network interfaces: {observed['links_error']}"
        return
    links = observed["links"]
    held = {address: name for name, addresses in links.items() for address in addresses}
    management = held.get(wanted["address"])
    if is_ipv6(wanted["address"]):
        yield (
            f"its management address {wanted['address']} is an IPv6 one, and Slurm, leases and the firewall are set up "
            f"for IPv4 in this release: give ansible_host the node's IPv4 address"
        )
    elif wanted.get("ssh_host"):
        yield (
            f"its address {wanted['ssh_host']} is written as ansible_ssh_host, by which Ansible logs in, and Slurm, "
            "/etc/hosts and the firewall are set up by ansible_host: write it as ansible_host"
        )
    elif not is_address(wanted["address"]):
        yield (
            f"its ansible_host {wanted['address']!r} is neither an IPv4 address nor a name, and goes to Slurm, "
            "/etc/hosts and the firewall as it stands: leave out user (ansible_user), port (ansible_port) and prefix"
        )
    elif management is None and not set(held) - {"127.0.0.1"} - {
        a for p in wanted["fabric_ports"] for a in links.get(p["interface"], ())
    }:
        yield (
            "it has no IPv4 address but those of fabric ports, and Slurm, leases and the firewall are set up for IPv4 "
            "in this release: give its management port one, and set ansible_host to it"
        )
    for port in wanted["fabric_ports"]:
        name, declared = port["interface"], port["address"]
        if name not in links and is_made(port):
            pass  # what it stands on is looked at by itself
        elif name not in links:
            there = ", ".join(sorted(set(links) - {"lo"})) or "none"
            yield f"fabric port {name} does not exist; interfaces there: {there}"
        elif name == management:
            yield f"fabric port {name} carries the management address {wanted['address']}; use another port"
        if observed["drivers"].get(name) in USB_NETWORK_DRIVERS:
            yield (
                f"fabric port {name} is the USB network function of the node's BMC (driver "
                f"{observed['drivers'][name]}): take it out of fabric_ports"
            )
        try:
            address = ipaddress.IPv4Interface(declared)
        except ValueError as error:
            yield f"fabric port {name}: address {declared!r} is not an IPv4 address with prefix: {error}"
            continue
        if "/" not in declared:
            yield f"fabric port {name}: address {declared} lacks its prefix length, e.g. /24"
        if address.is_link_local:
            yield f"fabric port {name}: address {declared} is link-local, as BMCs have: give the port one of its rail"
        holder = held.get(str(address.ip))
        if holder not in (None, name):
            yield f"fabric address {address.ip} is already on interface {holder}, not on {name}"
    for address, names in wanted["addresses"].items():
        if len(names) > 1 and wanted["name"] in names:
            yield f"address {address} is declared more than once in the inventory: {', '.join(names)}"


def carrier_notes(observed: Json, wanted: Json) -> list[str]:
    """Fabric ports by whose cable nothing comes. One that is switched off yet is looked at by role fabric."""
    carrier = observed.get("carrier") or {}
    return no_carrier([name for name in fabric_links(wanted["fabric_ports"]) if carrier.get(name) is False])


def filter_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """A packet filter that surely refuses what the site's nodes send each other."""
    yield from (said for sure, said in _shut_out(observed, wanted) if sure)


def filter_notes(observed: Json, wanted: Json) -> list[str]:
    """A packet filter that lets in some ports, sets conditions or asks other chains, so that nobody can be sure."""
    return [said for sure, said in _shut_out(observed, wanted) if not sure]


def _shut_out(observed: Json, wanted: Json) -> Iterator[tuple[bool, str]]:
    """For each chain whether it is sure, and the networks of the site that it refuses by default."""
    for chain in observed.get("filters") or ():
        site = wanted.get("site_networks") or ()
        closed = [network for network in site if not _let_in(network, chain, observed, wanted)]
        if not closed:
            continue
        if chain.get("unread"):
            yield (
                False,
                f"its packet filter could not be read ({chain['chain']}: {chain['unread']}): see that it lets in "
                f"{', '.join(closed)} on every port",
            )
            continue
        sure = not chain["unsure"]
        how = "refuses" if sure else "refuses by default (ports, conditions or other chains may let some in)"
        yield (
            sure,
            f"its packet filter ({chain['chain']}) {how} what comes from {', '.join(closed)}, and its nodes have to "
            "reach each other there on every port (Slurm's are 6817 to 6819; MPI, NCCL, leases and "
            f"measurements choose theirs): let these networks in, in the site's own rules too: {_cure(chain, closed)}",
        )


def _cure(chain: Json, networks: list[str]) -> str:
    if chain["chain"].startswith("iptables "):
        return f"iptables -I INPUT -s {','.join(networks)} -j ACCEPT"
    return f"nft insert rule {chain['chain']} ip saddr '{{ {', '.join(networks)} }}' accept"


def _let_in(network: str, chain: Json, observed: Json, wanted: Json) -> bool:
    """Whether a network is accepted by its addresses, or by the interface by which it comes in."""
    net = ipaddress.IPv4Network(network)
    accepted = [ipaddress.IPv4Network(text, strict=False) for text in chain["networks"]]
    if any(net.subnet_of(one) for one in ipaddress.collapse_addresses(accepted)):
        return True
    return bool(ways := _ways(net, observed, wanted)) and ways <= set(chain["interfaces"])


def _ways(network: ipaddress.IPv4Network, observed: Json, wanted: Json) -> set[str]:
    """Interfaces by which a network comes in: that of its rail, else that of the management address."""
    rails = {port["interface"] for port in wanted["fabric_ports"] if _in(port["address"], network)}
    return rails or {name for name, addresses in observed["links"].items() if wanted["address"] in addresses}


def _in(address: str, network: ipaddress.IPv4Network) -> bool:
    try:
        return ipaddress.IPv4Interface(address).ip in network
    except ValueError:
        return False
