"""This machine's addresses, as leases need them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from typing import Any

from toolkit.lease import LeaseError


def own_addresses() -> set[str]:
    """All IPv4 addresses of this machine."""
    try:
        done = subprocess.run(
            ["ip", "-json", "-4", "address", "show"],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
        )
    except FileNotFoundError:
        raise LeaseError("ip is not installed here (package iproute2 or iproute)") from None
    if done.returncode != 0:
        raise LeaseError(f"ip: {done.stderr.strip() or 'failed'}")
    links: list[dict[str, Any]] = json.loads(done.stdout)
    return {str(entry["local"]) for link in links for entry in link.get("addr_info", [])}


def source_address(server: str) -> str:
    """The address from which this machine reaches a server, by the kernel's own choice of route; "" without a route.
    Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((server, 9))  # any port
        except OSError:
            return ""
        return str(sock.getsockname()[0])
