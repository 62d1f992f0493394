#!/usr/bin/python3
"""Compare a node with what the roles need of it and return every reason why it does not fit."""

from __future__ import annotations

import ipaddress
import json
import os
import platform
import re
import shutil
import socket
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: node_preflight
short_description: Return every reason why a node does not fit
description:
  - A pure read. It never fails because of the node; the caller refuses, so that all nodes are heard first.
options:
  name: {description: the node's inventory name, type: str, required: true}
  address: {description: the address that the inventory reaches it by, type: str, required: true}
  fabric_ports: {description: ports with interface and address, type: list, elements: dict, default: []}
  supported_os: {description: "e.g. debian 12", type: list, elements: str, required: true}
  architectures: {description: accepted machines, type: list, elements: str, required: true}
  kernel_min: {description: oldest kernel, type: str, required: true}
  python_min: {description: oldest Python, type: str, required: true}
  memory_min_mib: {description: least memory, type: int, required: true}
  disk_min_mib: {description: least free space by path, type: dict, required: true}
  controller_time_s: {description: the controller's clock just before this call, type: float, required: true}
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Look at the node
  node_preflight:
    name: "{{ inventory_hostname }}"
    address: "{{ ansible_host }}"
    controller_time_s: "{{ now(utc=true).timestamp() }}"
"""
RETURN = r"""
reasons: {description: what does not fit, each a sentence with what to do, returned: always, type: list}
hostname: {description: the node's own short name, returned: always, type: str}
node_time_s: {description: the node's clock when it answered, returned: always, type: float}
offset_at_most_s: {description: upper limit of the clock's offset; it includes the way to the node, returned: always,
  type: float}
"""


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparison: 6.1.0-21-amd64 -> (6, 1, 0)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def check_system(wanted: dict[str, Any]) -> list[str]:
    """Operating system, architecture, kernel, Python, init and memory."""
    reasons = []
    release = dict(
        line.replace('"', "").split("=", 1)
        for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
        if "=" in line
    )
    system = f"{release.get('ID', '?')} {release.get('VERSION_ID', '?')}".lower()
    accepted = wanted["supported_os"]
    if not any(system == name or system.startswith(name + ".") for name in accepted):
        reasons.append(f"operating system is {system}; supported: {', '.join(accepted)} (preflight_supported_os)")
    if platform.machine() not in wanted["architectures"]:
        reasons.append(f"architecture is {platform.machine()}; supported: {', '.join(wanted['architectures'])}")
    if numbers(platform.release()) < numbers(wanted["kernel_min"]):
        reasons.append(f"kernel is {platform.release()}; at least {wanted['kernel_min']} is needed: upgrade and reboot")
    if numbers(platform.python_version()) < numbers(wanted["python_min"]):
        reasons.append(f"Python is {platform.python_version()}; at least {wanted['python_min']} is needed")
    if os.geteuid() != 0:
        reasons.append("not root: let the login user become root (sudo), or log in as root")
    if not Path("/run/systemd/system").is_dir():
        reasons.append("systemd is not the init of this machine; the roles manage services through it")
    memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    if memory_mib < wanted["memory_min_mib"]:
        reasons.append(f"memory is {memory_mib} MiB; at least {wanted['memory_min_mib']} MiB is needed")
    return reasons


def check_disk(needs: dict[str, Any]) -> list[str]:
    """Free space; paths on one file system share it, so the largest need counts there."""
    worst: dict[int, tuple[int, str]] = {}
    for path, need in needs.items():
        existing = Path(path)
        while not existing.exists():
            existing = existing.parent
        device = existing.stat().st_dev
        worst[device] = max(worst.get(device, (0, "")), (int(need), str(existing)))
    reasons = []
    for need, path in worst.values():
        free = shutil.disk_usage(path).free // 2**20
        if free < need:
            reasons.append(f"{path} has {free} MiB free; {need} MiB is needed: make room or mount more")
    return reasons


def check_addresses(module: AnsibleModule, wanted: dict[str, Any]) -> list[str]:
    """Interfaces and addresses as the inventory declares them."""
    code, out, err = module.run_command(["ip", "-json", "address", "show"])
    if code != 0:
        return [f"cannot list the network interfaces: {err.strip()}"]
    reasons = []
    links = {link["ifname"]: link for link in json.loads(out) if "ifname" in link}
    held = {
        entry["local"]: name
        for name, link in links.items()
        for entry in link.get("addr_info", [])
        if entry.get("family") == "inet"
    }
    management = held.get(wanted["address"])
    for port in wanted["fabric_ports"]:
        name, declared = port["interface"], port["address"]
        if name not in links:
            there = ", ".join(sorted(set(links) - {"lo"})) or "none"
            reasons.append(f"fabric port {name} does not exist; interfaces there: {there}")
        elif name == management:
            reasons.append(f"fabric port {name} carries the management address {wanted['address']}; use another port")
        try:
            address = ipaddress.IPv4Interface(declared)
        except ValueError as error:
            reasons.append(f"fabric port {name}: address {declared!r} is not an IPv4 address with prefix: {error}")
            continue
        if "/" not in declared:
            reasons.append(f"fabric port {name}: address {declared} lacks its prefix length, e.g. /24")
        holder = held.get(str(address.ip))
        if holder not in (None, name):
            reasons.append(f"fabric address {address.ip} is already on interface {holder}, not on {name}")
    return reasons


def check_names(wanted: dict[str, Any]) -> list[str]:
    """The node knows itself by its inventory name and can resolve it."""
    reasons = []
    own, declared = socket.gethostname().split(".")[0], wanted["name"].split(".")[0]
    if own != declared:
        reasons.append(f"its host name is {own}, the inventory calls it {declared}: hostnamectl hostname {declared}")
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        reasons.append(f"its own host name {socket.gethostname()} does not resolve: add it to /etc/hosts or DNS")
    return reasons


def main() -> None:
    """Run every check and return all reasons."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            "fabric_ports": {"type": "list", "elements": "dict", "default": []},
            "supported_os": {"type": "list", "elements": "str", "required": True},
            "architectures": {"type": "list", "elements": "str", "required": True},
            "kernel_min": {"type": "str", "required": True},
            "python_min": {"type": "str", "required": True},
            "memory_min_mib": {"type": "int", "required": True},
            "disk_min_mib": {"type": "dict", "required": True},
            "controller_time_s": {"type": "float", "required": True},
        },
        supports_check_mode=True,
    )
    arrival = time.time()  # at once: what follows must not count as an offset of the clock
    wanted = module.params
    reasons = (
        check_system(wanted)
        + check_disk(wanted["disk_min_mib"])
        + check_names(wanted)
        + check_addresses(module, wanted)
    )
    module.exit_json(
        changed=False,
        reasons=reasons,
        hostname=socket.gethostname(),
        node_time_s=arrival,
        offset_at_most_s=round(arrival - wanted["controller_time_s"], 3),
    )


if __name__ == "__main__":
    main()
