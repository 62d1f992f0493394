"""What role nvidia_driver decides of a node from a reading of node_state and the plan of its driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PERSISTENCED = "nvidia-persistenced.service"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
MODULES = "kernel modules of the driver"


def driver_judged(
    node: Mapping[str, Any],
    plan: Mapping[str, Any],
    *,
    user_space_only: bool,
    sysfs_root: str,
    secure_boot: str,
    built_by_dkms: bool,
) -> dict[str, Any]:
    """What a plan comes to on a node: faults, runs, not_applicable, notes, services and stopped.

    secure_boot: content of the EFI variable of that name; its last byte tells. built_by_dkms: the modules are built on
    the node, so that nobody has signed them.
    """
    return {
        "faults": _faults(node, plan, user_space_only=user_space_only, sysfs_root=sysfs_root),
        "runs": _runs(node, plan),
        "not_applicable": _left_out(node, plan, user_space_only=user_space_only),
        "notes": _notes(plan, secure_boot=secure_boot, built_by_dkms=built_by_dkms),
        "services": _services(plan),
        "stopped": _stopped(node, plan),
    }


def _faults(node: Mapping[str, Any], plan: Mapping[str, Any], *, user_space_only: bool, sysfs_root: str) -> list[str]:
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


def _runs(node: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Whether the node loads kernel modules of the driver: a container has those of its host."""
    return not node["in_container"] and plan["flavour"] != ""


def _left_out(node: Mapping[str, Any], plan: Mapping[str, Any], *, user_space_only: bool) -> list[str]:
    """What of the driver does not apply to this node, each with the reason."""
    left_out = []
    if node["in_container"]:
        left_out.append(f"{MODULES}: a container runs its host's kernel")
    elif user_space_only:
        left_out.append(f"{MODULES}: user space only was asked for")
    if not _runs(node, plan):
        left_out.append("nvidia-persistenced: runs only where the kernel modules do")
        if plan["nvswitches"]:
            left_out.append("Fabric Manager: runs only where the kernel modules do")
    return left_out


def _notes(plan: Mapping[str, Any], *, secure_boot: str, built_by_dkms: bool) -> list[str]:
    """What an operator has to know and stops nothing."""
    if secure_boot[-1:] == "\x01" and plan["flavour"] and built_by_dkms:
        return [
            "Secure Boot is on: modules built by DKMS load only when the node's key is enrolled (mokutil --import "
            "/var/lib/dkms/mok.pub)"
        ]
    return []


def _services(plan: Mapping[str, Any]) -> list[str]:
    """Units that run with the driver of this plan."""
    return [PERSISTENCED, *([FABRIC_MANAGER] if plan["fabric_manager"] else [])]


def _stopped(node: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Whether anything of a driver that runs here is not at work: its module, or a service of it."""
    units = [node["units"][name] for name in _services(plan)]
    at_work = node["modules"]["nvidia"]["loaded"] and all(unit["enabled"] and unit["active"] for unit in units)
    return _runs(node, plan) and not at_work


def driver_missing(node: Mapping[str, Any], what: str, waits: bool = False) -> list[str]:
    """That `what` is so because the driver's kernel module is not at work here, and why; [] where it is.

    waits: whether the driver waits for a reboot. Then it is loaded in another version than its libraries.
    """
    if node["in_container"]:
        return [f"{what}, a container has no kernel modules of its own"]
    if waits:
        return [f"{what}, the driver waits for a reboot"]
    return [] if node["modules"]["nvidia"]["loaded"] else [f"{what}, the driver's kernel module is not loaded"]
