"""Which operating systems the tables of the roles know, so that one that none of them knows is refused at the start."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.compatibility import known

ROLES = Path(__file__).parents[2] / "roles"
#: Roles without which a node is none of the site, and those that a GPU server takes besides. Of the others each says
#: itself what it does without an entry (not applicable, or an assertion of its own).
EVERYWHERE = ("base", "kernel", "ofed", "roce", "docker", "slurm")
GPU_SERVERS = ("cuda", "dcgm", "nvidia_driver")
#: Repositories that a node needs by what it is.
REPOSITORIES = {"nvidia_driver": ("cuda",), "docker": ("docker",)}


@functools.cache
def _variables(role: str) -> Mapping[str, Any]:
    """Internal variables of a role as they are written, before any expression in them."""
    data: Mapping[str, Any] = yaml_load((ROLES / role / "vars/main.yml").read_text(encoding="utf-8"))
    return data


def _knows(role: str, os_key: str) -> bool:
    return os_key in _variables(role)[f"__{role}_systems"]


def _serves(repository: str, os_key: str) -> bool:
    entry = _variables("repos")["__repos_catalogue"][repository]["url"]
    return not isinstance(entry, Mapping) or os_key in entry or "default" in entry


def system_lacks(os_key: str, left_out: Iterable[str], gpu_server: bool, vendors: bool) -> list[str]:
    """Roles, and repositories as `repos (NAME)`, that have no entry for a system and would be run on this node.

    left_out: roles that the inventory leaves out. vendors: whether the vendors' repositories are set up.
    """
    wanted = [*EVERYWHERE, *(GPU_SERVERS if gpu_server else ())]
    roles = [role for role in wanted if role not in set(left_out)]
    asked = {name for role in roles for name in REPOSITORIES.get(role, ()) if vendors}
    lacking = [role for role in roles if not _knows(role, os_key)]
    return sorted(lacking) + [f"repos ({name})" for name in sorted(asked) if not _serves(name, os_key)]


def system_unstated(os_key: str, stated: Mapping[str, Any], left_out: Iterable[str], gpu_server: bool) -> list[str]:
    """What of a system nobody but the site knows and its inventory does not state, each a sentence.

    stated: values of the variables that site_states of stacks/compatibility.yml names. left_out: roles that do not run.
    """
    without = {*left_out, *(() if gpu_server else GPU_SERVERS)}
    return [
        f"{one['variable']} is not set, and a node with {os_key} needs it: {one['why']}; look what your repository has "
        f'and set it, for example {one["variable"]}: "{one["example"]}"'
        for one in known()["site_states"].get(os_key, ())
        if one["role"] not in without and not stated.get(one["variable"])
    ]


def slurm_stated(os_key: str, stated: str) -> tuple[list[str], list[str]]:
    """Reasons against, and notes of, the release of Slurm that an inventory states (slurm_release)."""
    from toolkit.joined.cluster import BY_DOCUMENTS, READ, RUN

    if not stated:
        return [], []
    if not re.fullmatch(r"\d\d\.(02|05|08|11)", stated):
        return [f'slurm_release is {stated}, which is no release of Slurm: for example slurm_release: "25.11"'], []
    if stated in (*RUN, *READ):
        return [], []
    if stated in BY_DOCUMENTS:
        return [], [
            f"Slurm {stated} on {os_key} is stated by the inventory (slurm_release): known by documents, not run"
        ]
    if stated < RUN[0]:
        return [f"slurm_release is {stated}; {RUN[0]} is the oldest that leases work with: take later packages"], []
    return [], [
        f"Slurm {stated} on {os_key} is stated by the inventory (slurm_release): later than every release that was run "
        f"({', '.join((*RUN, *READ))}) or read of ({BY_DOCUMENTS[-1]})"
    ]
