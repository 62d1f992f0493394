"""What the roles will install on a node, known before any of them has run: from their own tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.packages import DNF_VERSIONLOCK
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.docker import docker_packages
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.gpu import (
    cuda_packages,
    dcgm_cuda_majors_of,
    dcgm_packages,
    driver_plan,
)
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.repos import is_apt

Json = Mapping[str, Any]
Needs = dict[str, str]


def named(data: Json, entry: Any) -> Any:
    """An entry of a role's table; one that is made of other variables of the file is merged from these."""
    if not isinstance(entry, str):
        return entry
    merged: dict[str, Any] = {}
    for name in re.findall(r"__\w+", entry):
        merged.update(data[name])
    return merged


def free(names: Iterable[str]) -> Needs:
    """Packages in any version."""
    return dict.fromkeys(names, "")


def _locks(data: Json, node: Json) -> Needs:
    return {} if is_apt(node["os_key"]) else free([DNF_VERSIONLOCK])


def _family(data: Json, node: Json) -> Needs:
    (table,) = (value for key, value in data.items() if key.endswith("_systems"))
    return free(table["Debian" if is_apt(node["os_key"]) else "RedHat"])


def _acceptance(data: Json, node: Json) -> Needs:
    family = "Debian" if is_apt(node["os_key"]) else "RedHat"
    fio = data["__acceptance_storage_systems"][family] if node.get("storage") else []
    return free([*data["__acceptance_systems"][family], *fio])


def _base(data: Json, node: Json) -> Needs:
    return free(data["__base_systems"][node["os_key"]]["packages"])


def _ofed(data: Json, node: Json) -> Needs:
    stack, table = node["stack"].get("ofed") or {}, data["__ofed_systems"][node["os_key"]]
    if stack.get("provider", "inbox") == "inbox":
        return free(table["inbox"])
    version = str(stack.get("version") or "")
    build = data["__ofed_doca_builds"].get(version, "")
    headers = [] if node["in_container"] else [name.replace("{kernel}", node["kernel"]) for name in table["headers"]]
    profile = str(node["variables"].get("ofed_doca_profile") or "doca-ofed")
    build = str(node["variables"].get("ofed_doca_build") or build)
    return {**free(headers), profile: f"{version}-{build}" if version else ""}


def _roce(data: Json, node: Json) -> Needs:
    return free(data["__roce_systems"][node["os_key"]])


def _driver(data: Json, node: Json) -> Needs:
    stack, variables = node["stack"].get("nvidia_driver") or {}, node["variables"]
    table = data["__nvidia_driver_systems"][node["os_key"]].get(stack.get("provider", "distribution"), {})
    options = {
        "flavour": variables.get("nvidia_driver_flavour") or "auto",
        "user_space_only": node["user_space_only"],
        "mps": True,
        "kernel": node["kernel"],
        "in_container": node["in_container"],
        "fabric_manager_version": (node["stack"].get("fabric_manager") or {}).get("version", ""),
        "nvlsm_version": (node["stack"].get("nvlsm") or {}).get("version", ""),
        "revision": variables.get("nvidia_driver_package_revision") or "",
    }
    plan = driver_plan(table, str(stack.get("version") or ""), node["pci"], options)
    return {**plan["before"], **plan["packages"]}


def _cuda(data: Json, node: Json) -> Needs:
    built, parts = node["variables"].get("cuda_nccl_built_for") or {}, node["variables"].get("cuda_parts") or {}
    known = {
        key: {**data["__cuda_parts"].get(key, {}), **parts.get(key, {})} for key in {*data["__cuda_parts"], *parts}
    }
    table, versions = data["__cuda_systems"][node["os_key"]], node["stack"].get("cuda") or {}
    return dict(cuda_packages(table, versions, {**data["__cuda_nccl_built_for"], **built}, known))


def _dcgm(data: Json, node: Json) -> Needs:
    driver = str((node["stack"].get("nvidia_driver") or {}).get("version") or "")
    stack = node["stack"].get("dcgm") or {}
    majors = stack.get("cuda_majors") or dcgm_cuda_majors_of(driver, node["pci"])
    return dcgm_packages(data["__dcgm_names"], str(stack.get("version") or ""), majors)


def _docker(data: Json, node: Json) -> Needs:
    stack = node["stack"].get("docker") or {}
    system = {"os_key": node["os_key"], **data["__docker_systems"][node["os_key"]]}
    containerd = str(node["variables"].get("docker_containerd_version") or "")
    return docker_packages(system, stack.get("provider") or "distribution", str(stack.get("version") or ""), containerd)


def _container_toolkit(data: Json, node: Json) -> Needs:
    version = str((node["stack"].get("container_toolkit") or {}).get("version") or "")
    return dict.fromkeys(data["__nvidia_container_toolkit_names"], f"{version}-1" if version else "")


def _slurm(data: Json, node: Json) -> Needs:
    packages = named(data, data["__slurm_systems"][node["os_key"]])["packages"]
    kinds = [kind for kind, here in (("head", node["head"]), ("compute", node["gpu_server"])) if here] or ["client"]
    return free(name for kind in kinds for name in packages[kind])


def _server(data: Json, node: Json) -> Needs:
    return free(data["__remoting_server_own_packages"])


def _monitoring(data: Json, node: Json) -> Needs:
    system = data["__monitoring_systems"][node["os_key"]]
    on_head = ["prometheus", *(["prometheus-alertmanager"] if node.get("notifies") else [])]
    return free([system["package"], *(on_head if node["head"] and system["prometheus"] else [])])


#: Of each role, what it wants on a node of which `when` (a key of the node) holds, "" for every node.
ROLES: dict[str, tuple[str, Callable[[Json, Json], Needs]]] = {
    "packages": ("", _locks),
    "base": ("", _base),
    "ofed": ("", _ofed),
    "roce": ("roce", _roce),
    "nvidia_driver": ("gpu_server", _driver),
    "cuda": ("gpu_server", _cuda),
    "dcgm": ("gpu_server", _dcgm),
    "docker": ("", _docker),
    "nvidia_container_toolkit": ("gpu_server", _container_toolkit),
    "remoting_server": ("gpu_server", _server),
    "remoting_client": ("", _family),
    "slurm": ("scheduled", _slurm),
    "acceptance": ("", _acceptance),
    "monitoring": ("", _monitoring),
}


@cache
def declared(file: Path) -> Json:
    """A role's vars/main.yml, read once; {} where a role has none."""
    data: Json = (yaml_load(file.read_text(encoding="utf-8")) or {}) if file.exists() else {}
    return data


def load(roles: Path) -> None:
    """Read what roles declare: in the process that Ansible forks its workers from, and not in each of these."""
    for role in ROLES:
        declared(roles / role / "vars/main.yml")


def package_needs(roles: str, node: Json) -> dict[str, Needs]:
    """By role, version by package ("" for any) that the node gets.

    roles: a role's folder, beside which the others are. node: os_key, kernel, in_container, user_space_only, pci, stack
    (the effective set), head, gpu_server, roce, scheduled, storage, notifies (somebody, of alerts), left_out (names of
    roles) and variables of the inventory.
    A role without an entry for the system wants nothing here: other checks refuse the system.
    """
    wanted = {}
    for role, (when, ask) in ROLES.items():
        if role in node["left_out"] or (when and not node[when]):
            continue
        try:
            wanted[role] = ask(declared(Path(roles).parent / role / "vars/main.yml"), node)
        except KeyError:
            continue
    return wanted


def packages_missing(answer: Json, needs: Mapping[str, Needs]) -> list[str]:
    """What the package manager has not got, a sentence for each role; answer: what module package_question returned."""
    if answer.get("unreadable"):
        return [f"the package manager cannot read this node's repositories: {answer['unreadable']}"]
    faults = []
    for role, wanted in needs.items():
        missing = []
        for name in sorted(set(wanted) & set(answer.get("missing") or {})):
            there = answer["missing"][name]
            version = f" {wanted[name]}" if wanted[name] else ""
            missing.append(f"{name}{version}" + (f" (there: {', '.join(there[:3])})" if there else ""))
        if missing:
            faults.append(f"no repository of this node has, for role {role}: {', '.join(missing)}")
    lacking = answer.get("unmet") or []
    if lacking:
        faults.append(f"no repository of this node has what packages need: {'; '.join(lacking)}")
    hint = ": add them to the content view or repository that this node uses (repos_from is system)"
    return [*faults[:-1], faults[-1] + hint] if faults else []
