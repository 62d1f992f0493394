"""This machine's addresses and ports, as leases need them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from toolkit.lease import LeaseError
from toolkit.lease.job_comment import MAX_CLIENTS


def _addresses(*scope: str) -> list[str]:
    try:
        done = subprocess.run(
            ["ip", "-json", "-4", "address", "show", *scope], capture_output=True, text=True, check=False, timeout=30
        )
    except FileNotFoundError:
        raise LeaseError("ip is not installed here (package iproute2 or iproute)") from None
    if done.returncode != 0:
        raise LeaseError(f"ip: {done.stderr.strip() or 'failed'}")
    links: list[dict[str, Any]] = json.loads(done.stdout)
    return [str(entry["local"]) for link in links for entry in link.get("addr_info", [])]


def own_addresses() -> set[str]:
    """All IPv4 addresses of this machine."""
    return set(_addresses())


def client_addresses() -> tuple[str, ...]:
    """The IPv4 addresses by which a GPU server may see this machine: not loopback, eight at most."""
    found = _addresses("scope", "global")
    if not found:
        raise LeaseError("this machine has no IPv4 address that a GPU server can reach")
    return tuple(dict.fromkeys(found))[:MAX_CLIENTS]


def listening(port: int) -> bool:
    """Whether something on this machine listens on a TCP port, by the kernel's tables."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            rows = [line.split() for line in table.read_text().splitlines()[1:]]
        except OSError:
            continue
        if any(int(row[1].rsplit(":", 1)[1], 16) == port and row[3] == "0A" for row in rows):
            return True
    return False
