"""What NCCL and UCX are told of the fabric: adapters, interface and traffic class follow from the declared ports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Port = Mapping[str, Any]

#: From a port's interface to its RDMA device: its own, that of a VLAN's parent or a bond's member, or one step further.
STEPS = ("", "lower_*/", "lower_*/lower_*/")
BEGIN, END = (
    "# Begin: managed by Ansible (role cuda). The environment overrides.",
    "# End: managed by Ansible (role cuda).",
)


def _interfaces(ports: Sequence[Port], rdma: bool = False) -> list[str]:
    return [str(port["interface"]) for port in ports if port.get("rdma", True) or not rdma]


def nccl_reads(ports: Sequence[Port], sysfs_root: str) -> list[str]:
    """Globs whose matches tell the RDMA devices of the fabric ports."""
    names = _interfaces(ports, rdma=True)
    return [f"{sysfs_root}/class/net/{name}/{step}device/infiniband/*" for name in names for step in STEPS]


def rdma_of_ports(ports: Sequence[Port], paths: Iterable[str]) -> list[str]:
    """RDMA devices of the fabric ports in the order of the inventory, each once, from what nccl_reads found."""
    found: list[str] = []
    for name in _interfaces(ports, rdma=True):
        own = re.compile(rf"/class/net/{re.escape(name)}/(?:.+/)?device/infiniband/([^/]+)$")
        found += sorted(match[1] for match in map(own.search, paths) if match)
    return list(dict.fromkeys(found))


def fabric_libraries(ports: Sequence[Port], paths: Iterable[str], policy: str) -> dict[str, dict[str, str]]:
    """Settings of NCCL and of UCX by name; none where no fabric port is declared.

    paths: what nccl_reads found; policy: text of the file that role roce leaves, "" where RoCE is not set up. Names are
    exact (=): mlx5_1 alone would stand for mlx5_10 too. Where RDMA carries the data, the interface is for the first
    contact alone; else all fabric ports carry them. Port 1: adapters since Connect-IB have a device for each port.
    Source: NCCL user guide (environment variables); UCX_IB_TRAFFIC_CLASS and UCX_NET_DEVICES as `ucx_info -cf` tells.
    """
    devices = rdma_of_ports(ports, list(paths))
    names = _interfaces(ports)
    if not names:
        return {"nccl": {}, "ucx": {}}
    nccl = {"NCCL_SOCKET_IFNAME": "=" + (names[0] if devices else ",".join(names))}
    if not devices:
        return {"nccl": nccl, "ucx": {}}
    nccl["NCCL_IB_HCA"] = "=" + ",".join(devices)
    ucx = {"UCX_NET_DEVICES": ",".join(f"{device}:1" for device in devices)}
    traffic_class = (json.loads(policy) if policy.strip() else {}).get("traffic_class")
    if traffic_class is not None:
        nccl["NCCL_IB_TC"] = ucx["UCX_IB_TRAFFIC_CLASS"] = str(traffic_class)
    return {"nccl": nccl, "ucx": ucx}


def _others(text: str) -> list[str]:
    """Lines of a configuration file that are not this role's."""
    lines, ours = [], False
    for line in text.splitlines():
        ours = ours or line == BEGIN
        if not ours:
            lines.append(line)
        ours = ours and line != END
    return lines


def library_file(path: str, there: str, derived: Mapping[str, Any], by_hand: Mapping[str, Any]) -> dict[str, Any]:
    """Entry of managed_files for a configuration file of NCCL or UCX, in which others may have lines too.

    there: its text now. What the inventory sets (by_hand) wins over what was derived, and an empty value leaves it out;
    what others set before the first section, which holds on every machine, wins over what was derived too. Their lines
    stay, for UCX's package has sections for some processors.
    """
    others = _others(there)
    theirs: set[str] = set()
    for line in others:
        if line.lstrip().startswith("["):
            break
        name, equals, _ = line.partition("=")
        theirs |= {name.strip()} if equals else set()
    wanted = {name: value for name, value in derived.items() if name not in theirs} | dict(by_hand)
    lines = [f"{name}={value}" for name, value in sorted(wanted.items()) if value not in ("", None)]
    if lines:
        return {"path": path, "content": "\n".join([BEGIN, *lines, END, *others]) + "\n"}
    return {"path": path, "state": "absent", "when": BEGIN in there.splitlines()}
