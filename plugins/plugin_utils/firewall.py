"""The networks of a site's nodes, which role firewall lets reach each other, and what ufw lets in already."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

#: How ufw keeps our comment in user.rules: as hex.
COMMENT = "elastic-ai"
_RULE = re.compile(
    rf"^### tuple ### allow any any 0\.0\.0\.0/0 any (\S+) in comment={COMMENT.encode().hex()}\s*$", re.MULTILINE
)


def _address(text: str) -> ipaddress.IPv4Address | None:
    """An address by which another node can be seen; None for names, for this machine's own and for IPv6."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return None
    return None if address.is_loopback else address


def _network(text: str) -> ipaddress.IPv4Network:
    """A network of firewall_networks; AnsibleFilterError where it is none that the firewall can let in."""
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as fault:
        why = "is of IPv6, and this release sets nothing up over it" if ":" in str(text) else f"is no network ({fault})"
        raise AnsibleFilterError(f"firewall_networks: {text} {why}; write it like 198.51.100.0/24") from None


def _rail(address: str) -> ipaddress.IPv4Network | None:
    """The network of a fabric port; None of an address that is none, which preflight refuses by itself."""
    try:
        return ipaddress.IPv4Interface(address).network
    except ValueError:
        return None


def site_networks(
    names: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]], extra: Iterable[str] = ()
) -> dict[str, list[str]]:
    """`networks` from which the nodes of the inventory reach each other, as few as there can be, and `unknown` nodes.

    Those are the networks of the fabric ports, the nodes' management addresses, and `extra`. A node is unknown if its
    management address stands in the inventory as a name.
    """
    found = [_network(network) for network in extra]
    unknown = []
    for name in names:
        own = hostvars[name]
        address = _address(str(own.get("ansible_host", name)))
        if address is None:
            unknown.append(name)
        else:
            found.append(ipaddress.IPv4Network(address))
        found += [network for port in own.get("fabric_ports") or [] if (network := _rail(port["address"]))]
    return {"networks": [str(n) for n in ipaddress.collapse_addresses(found)], "unknown": unknown}


def ufw_networks(rules: str) -> list[str]:
    """Networks that ufw lets in for this role, from the text of /etc/ufw/user.rules; single addresses as NET/32."""
    return [str(ipaddress.IPv4Network(network)) for network in _RULE.findall(rules)]
