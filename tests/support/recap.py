"""Ansible's last lines."""

from __future__ import annotations

import re


def recap(output: str) -> dict[str, dict[str, int]]:
    """Counters of each host from Ansible's last lines."""
    lines = re.findall(r"^(\S+)\s+: (ok=.*)$", output, re.M)
    return {host: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", counts)} for host, counts in lines}
