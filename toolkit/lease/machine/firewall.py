"""Who may connect to leases on this server: one nftables table. All ports of leases are closed, except to the addresses
in its set; a lease adds (address, port) and takes them away again.

nftables, because it holds in containers and on kernels without BPF as well; systemd's IPAddressAllow= comes on top
where the kernel has it.
"""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
from collections.abc import Iterable

from toolkit.lease import LeaseError

TABLE = "elastic_ai_lease"


def ruleset(first: int, last: int) -> str:
    """The table, empty; loading it again keeps nothing of the old one."""
    return f"""add table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
  set allowed {{
    type ipv4_addr . inet_service
  }}
  chain input {{
    type filter hook input priority -10; policy accept;
    tcp dport {first}-{last} ip saddr . tcp dport @allowed accept
    tcp dport {first}-{last} drop
  }}
}}
"""


def _nft(args: list[str], stdin: str = "") -> str:
    try:
        done = subprocess.run(
            ["nft", *args],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
        )
    except FileNotFoundError:
        raise LeaseError("nft is not installed; without it leases would be open to everybody") from None
    except subprocess.TimeoutExpired:
        raise LeaseError("nft did not answer within 30 s") from None
    if done.returncode != 0:
        raise LeaseError(f"nft: {(done.stderr.strip().splitlines() or ['failed'])[0]}")
    return done.stdout


def _elements(clients: Iterable[str], ports: Iterable[int]) -> str:
    pairs = [f"{ipaddress.IPv4Address(c)} . {int(p)}" for c in clients for p in ports]
    return "{ " + ", ".join(pairs) + " }"


def load(first: int, last: int) -> None:
    """Close all ports of leases. Only where the table is not there, or when no lease runs."""
    _nft(["-f", "-"], ruleset(first, last))


def loaded() -> bool:
    """Whether the table is there."""
    try:
        _nft(["list", "chain", "inet", TABLE, "input"])
    except LeaseError:
        return False
    return True


def admit(clients: Iterable[str], ports: Iterable[int]) -> None:
    """Let these addresses connect to these ports."""
    _nft(["add", "element", "inet", TABLE, "allowed", _elements(clients, ports)])


def admitted() -> set[tuple[str, int]]:
    """All (address, port) that are open now."""
    found = json.loads(_nft(["--json", "list", "set", "inet", TABLE, "allowed"]))
    sets = [entry["set"] for entry in found["nftables"] if "set" in entry]
    return {(e["concat"][0], int(e["concat"][1])) for s in sets for e in s.get("elem", []) if "concat" in e}


def shut(ports: Iterable[int]) -> None:
    """Take away all that is admitted to these ports."""
    wanted = set(ports)
    pairs = [(address, port) for address, port in admitted() if port in wanted]
    if pairs:
        listed = ", ".join(f"{address} . {port}" for address, port in pairs)
        _nft(["delete", "element", "inet", TABLE, "allowed", "{ " + listed + " }"])


def remove() -> None:
    """Take the table away; nothing when it is not there."""
    _nft(["-f", "-"], f"add table inet {TABLE}\ndelete table inet {TABLE}\n")
