"""What a site needs of package repositories, for a mirror: known without a connection to any node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError  # type: ignore[import-untyped]

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.gpu import driver_plan
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.needs import Json, Needs, declared, free, package_needs
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.repos import is_apt

#: Kernel of a node that nobody has recorded, as the packages that follow the newest kernel are named.
NEWEST_KERNEL = {"debian": "amd64", "ubuntu": "generic"}
DRIVER_PIN = {
    "cuda": ("/nvidia|^cuda-drivers|^lib(cuda|nv|xnv)/", 1010),
    "distribution": (
        "src:nvidia-graphics-drivers* src:nvidia-open-gpu-kernel-modules src:nvidia-persistenced src:nvidia-modprobe",
        990,
    ),
}


def mirror_observed(system: str, in_container: bool = False) -> dict[str, Any]:
    """What is taken of a node that nobody has recorded. system: `debian 12`, as the inventory's stack.os."""
    name, _, version = system.lower().partition(" ")
    major = version.partition(".")[0]
    return {
        "os": {"id": name, "version": version, "rhel_like": name in ("rhel", "rocky", "almalinux"), "major": major},
        "kernel": NEWEST_KERNEL.get(name, ""),
        "in_container": in_container,
        "pci": [],
        "recorded": False,
    }


def _plain(role: str) -> Callable[[Json, Json], Needs]:
    """Of a role with one list for all systems that it is for."""
    return lambda data, node: free(data[f"__{role}_packages"] if node["os_key"] in data[f"__{role}_systems"] else ())


def _training(data: Json, node: Json) -> Needs:
    registry = data["__horovod_systems"].get(node["os_key"][:6], [])
    return free([*registry, "mmdebstrap", "skopeo"] if registry else ())


def _kernel(data: Json, node: Json) -> Needs:
    return free(data["__kernel_systems"][node["os_key"]]["tools"])


#: Of roles that preflight does not ask for: what each wants on a node of which `when` (a key of the node) holds.
MORE: dict[str, tuple[str, Callable[[Json, Json], Needs]]] = {
    "backup": ("head", _plain("backup")),
    "kernel": ("", _kernel),
    "pool_page": ("pool_page", _plain("pool_page")),
    "jupyterhub": ("jupyterhub", _plain("jupyterhub")),
    "horovod": ("builds_image", _training),
}


def mirror_needs(roles: str, node: Json) -> dict[str, Any]:
    """What a node needs: `wanted` (version by package, by role), `image` (packages of the training image, which is made
    of the same system), `pins` (preferences of apt under which the roles install) and `notes`.

    roles: a role's folder. node: as of package_needs, and pool_page, jupyterhub, builds_image, training (packages of
    the image) and extra (packages that the inventory adds).
    """
    known = declared(Path(roles).parent / "base/vars/main.yml")["__base_systems"]
    if node["os_key"] not in known:
        what = f"{node['os_key']} is none of {', '.join(known)}" if node["os_key"] else "its system is not known"
        cure = "name it in the inventory as stack.os, such as debian 12, or record the node: toolkit mirror plan --help"
        raise AnsibleFilterError(f"{what}; {cure}")
    wanted = package_needs(roles, node)
    for role, (when, ask) in MORE.items():
        if role not in node["left_out"] and (not when or node[when]):
            wanted[role] = ask(declared(Path(roles).parent / role / "vars/main.yml"), node)
    wanted["inventory"] = free(node["extra"])
    wanted = {role: _whole(needs) for role, needs in wanted.items()}
    notes = []
    if not node["recorded"] and node["gpu_server"] and not node["user_space_only"]:
        notes.append(
            "nobody has recorded this node: kernel headers are those of its newest kernel, and the driver is chosen "
            "without its GPUs; record it (toolkit mirror plan --help)"
        )
    return {
        "os_key": node["os_key"],
        "wanted": {role: needs for role, needs in wanted.items() if needs},
        "image": sorted(set(node["training"])) if wanted.get("horovod") else [],
        "pins": _pins(Path(roles).parent, node),
        "notes": notes,
    }


def _whole(needs: Mapping[str, str]) -> Needs:
    """Without names that end where a kernel's would be."""
    return {name: version for name, version in needs.items() if not name.endswith("-")}


def _pins(roles: Path, node: Json) -> list[dict[str, Any]]:
    """The preference that role nvidia_driver writes before it installs."""
    stack = node["stack"].get("nvidia_driver") or {}
    provider = str(stack.get("provider") or "distribution")
    if not node["gpu_server"] or not is_apt(node["os_key"]) or "nvidia_driver" in node["left_out"]:
        return []
    data = declared(roles / "nvidia_driver/vars/main.yml")
    table = data["__nvidia_driver_systems"].get(node["os_key"], {}).get(provider, {})
    options = {"flavour": "auto", "user_space_only": True, "mps": True, "kernel": "", "in_container": True}
    plan = driver_plan(table, str(stack.get("version") or ""), [], {**options, "fabric_manager_version": ""})
    packages, priority = DRIVER_PIN["cuda" if provider == "cuda" else "distribution"]
    why = "role nvidia_driver"
    return [{"why": why, "packages": packages, "pin": plan["pin"], "priority": priority}] if plan["pin"] else []
