"""What role nvidia_driver decides of a node from a reading of node_state and the plan of its driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PERSISTENCED = "nvidia-persistenced.service"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
MODULES = "kernel modules of the driver"


def driver_faults(
    node: Mapping[str, Any], plan: Mapping[str, Any], *, user_space_only: bool, sysfs_root: str
) -> list[str]:
    """Why the driver cannot be installed as the settings say; those of the plan first."""
    faults = list(plan["faults"])
    if not user_space_only and not plan["gpus"]:
        faults.append(
            f"no NVIDIA GPU on the PCI bus below {sysfs_root}; check seating and BIOS, take the node out of the group "
            'gpu_servers, or set nvidia_driver_user_space_only to "true"'
        )
    others = [name for name, version in node["packages"].items() if version and name in plan["unwanted"]]
    if others:
        faults.append(
            f"{', '.join(others)} is installed; the other kind of kernel modules is wanted here ({plan['flavour']}): "
            "run the role with nvidia_driver_state absent first"
        )
    return faults


def driver_runs(node: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Whether the node loads kernel modules of the driver: a container has those of its host."""
    return not node["in_container"] and plan["flavour"] != ""


def driver_left_out(node: Mapping[str, Any], plan: Mapping[str, Any], *, user_space_only: bool) -> list[str]:
    """What of the driver does not apply to this node, each with the reason."""
    left_out = []
    if node["in_container"]:
        left_out.append(f"{MODULES}: a container runs its host's kernel")
    elif user_space_only:
        left_out.append(f"{MODULES}: user space only was asked for")
    if not driver_runs(node, plan):
        left_out.append("nvidia-persistenced: runs only where the kernel modules do")
        if plan["nvswitches"]:
            left_out.append("Fabric Manager: runs only where the kernel modules do")
    return left_out


def driver_notes(plan: Mapping[str, Any], *, secure_boot: str, built_by_dkms: bool) -> list[str]:
    """What an operator has to know. secure_boot: content of the EFI variable of that name; its last byte tells."""
    if secure_boot[-1:] == "\x01" and plan["flavour"] and built_by_dkms:
        return [
            "Secure Boot is on: modules built by DKMS load only when the node's key is enrolled (mokutil --import "
            "/var/lib/dkms/mok.pub)"
        ]
    return []


def driver_services(plan: Mapping[str, Any]) -> list[str]:
    """Units that run with the driver of this plan."""
    return [PERSISTENCED, *([FABRIC_MANAGER] if plan["fabric_manager"] else [])]


def driver_stopped(node: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Whether anything of a driver that runs here is not at work: its module, or a service of it."""
    units = [node["units"][name] for name in driver_services(plan)]
    at_work = node["modules"]["nvidia"]["loaded"] and all(unit["enabled"] and unit["active"] for unit in units)
    return driver_runs(node, plan) and not at_work


def driver_obsolete(holds: Mapping[str, Any], plan: Mapping[str, Any], missing: list[str]) -> list[str]:
    """Packages on hold that the plan has under other names, where any of the plan's is missing."""
    return [name for name in holds if name not in plan["packages"]] if missing else []
