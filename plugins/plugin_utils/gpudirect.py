"""What role gpudirect decides of a node: how GPU memory reaches the network adapters, and what does not apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.gpu import gpu_list, peer_memory

LOADED = "/proc/driver/nvidia/version"
OFED = "/usr/bin/ofed_info"


def gpudirect_judged(
    node: Mapping[str, Any],
    driver: Mapping[str, Any],
    ofed: Mapping[str, Any],
    *,
    way: str,
    acs_off: bool,
    guest: bool,
) -> dict[str, Any]:
    """How GPU memory reaches the network adapters of a node: way, why, acs_off and not_applicable.

    driver, ofed: what the roles of these names set as their result; {} where a role did not run, and what is loaded and
    installed tells. guest: whether the node is a virtual machine.
    """
    contained = bool(node["in_container"])
    choice = _choice(node, driver, ofed, way)
    switched = acs_off and not guest and not contained
    left_out = [f"GPUDirect RDMA: {choice['why']}"] if choice["way"] == "none" else []
    if acs_off and not switched:
        kind = "container" if contained else "virtual machine whose hypervisor owns the bridges"
        left_out.append(f"ACS off: only on bare metal, this node is a {kind}")
    return {**choice, "acs_off": switched, "not_applicable": left_out}


def _choice(node: Mapping[str, Any], driver: Mapping[str, Any], ofed: Mapping[str, Any], asked: str) -> dict[str, str]:
    if node["in_container"]:
        return {"way": "none", "why": "a container uses what its host has loaded"}
    if not gpu_list(node["pci"]):
        return {"way": "none", "why": "no NVIDIA GPU on the PCI bus"}
    if asked != "auto":
        return {"way": asked, "why": "set by gpudirect_way"}
    version = (driver.get("versions") or {}).get("driver") or node["modules"]["nvidia"]["version"] or "0"
    # The OFED of the vendor has the peer-memory interface in its ib_core; the kernel's own has not.
    vendors = OFED in node["files"] or ofed.get("provider") == "doca"
    return peer_memory(_flavour(node, driver), int(version.split(".")[0]), node["kernel"], vendors)


def _flavour(node: Mapping[str, Any], driver: Mapping[str, Any]) -> str:
    """Kind of the kernel modules; '' where none is loaded."""
    loaded = node["contents"][LOADED]
    return str(driver.get("flavour") or ("open" if "Open Kernel Module" in loaded else "proprietary" if loaded else ""))
