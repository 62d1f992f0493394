"""What may stand where a node's address is asked for."""

from __future__ import annotations

import ipaddress
import re


def is_ipv6(address: str) -> bool:
    """Whether it is an IPv6 address, with prefix, brackets or zone too; a name is none."""
    try:
        return ipaddress.ip_interface(address.strip("[]").partition("%")[0]).version == 6
    except ValueError:
        return False


def address_fault(address: str) -> str:
    """Why nobody can be reached at an address, in words; "" for an IPv4 address or a name. It goes to Slurm, the table
    of hosts and the firewall as it stands, and to ssh as a word of its own."""
    if is_ipv6(address):
        return f"{address} is an IPv6 address, and this release reaches everything over IPv4 alone; write that address"
    if re.fullmatch(r"[0-9.]+", address):
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            return f"{address} is no IPv4 address; write its four numbers, without zeros in front"
    if address != address.strip() or re.search(r"[\s/]", address) or address.startswith("-"):
        return f"{address!r} is neither an IPv4 address nor a name; leave out blanks, prefix and dashes in front"
    if "@" in address:
        return f"{address!r} names a user too; give that as ansible_user"
    if ":" in address:
        return f"{address!r} names a port too; give that as ansible_port"
    return ""


def without_ipv6(address: str, instead: str) -> None:
    """ValueError for an IPv6 address: daemons, leases, firewall and measurements are set up for IPv4."""
    if is_ipv6(address):
        raise ValueError(f"{address}: Slurm, leases and measurements of this release run over IPv4 alone; {instead}")
