"""The decision whether a node can be provisioned, from what was observed of it; needs no connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.claims import claim_notes, claim_reasons
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.devices import device_notes, device_reasons
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.foreign import foreign_notes, foreign_reasons
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.layers import layer_reasons
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.preflight_join import join_reasons
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.preflight_network import (
    address_reasons,
    carrier_notes,
    filter_notes,
    filter_reasons,
    listen_reasons,
    time_notes,
    time_reasons,
)
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.preflight_node import (
    built_modules,
    clock_reasons,
    confinement_reasons,
    disk_reasons,
    first_reboot,
    kernel_reasons,
    name_reasons,
    python_notes,
    stated_notes,
    system_reasons,
    work_reasons,
)
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.preflight_packages import (
    engine_reasons,
    key_reasons,
    repository_reasons,
)
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.preflight_site import site_notes, site_reasons
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.routing import routing_reasons

Json = Mapping[str, Any]


def preflight_facts(observed: Json) -> dict[str, Any]:
    """What filter os_key wants to know, from the observed os-release."""
    system = observed["os"]
    return {
        "distribution": system["id"],
        "distribution_version": system["version"],
        "distribution_major_version": system["version"].split(".")[0],
        "os_family": "RedHat" if system["rhel_like"] else "",
    }


CHECKS = (
    system_reasons,
    site_reasons,
    disk_reasons,
    name_reasons,
    address_reasons,
    listen_reasons,
    time_reasons,
    filter_reasons,
    layer_reasons,
    routing_reasons,
    claim_reasons,
    clock_reasons,
    device_reasons,
    kernel_reasons,
    work_reasons,
    foreign_reasons,
    join_reasons,
    confinement_reasons,
    key_reasons,
    repository_reasons,
    engine_reasons,
)


def preflight_reasons(observed: Json, wanted: Json) -> list[str]:
    """Every reason why a node cannot be provisioned, each a sentence with what to do."""
    return [reason for check in CHECKS for reason in check(observed, wanted)]


#: Of a message, in characters: many times what one has; a module's traceback may be any length.
_LONGEST = 20_000


def preflight_unread(results: Iterable[Json], failed: Json) -> list[str]:
    """Why a node could not be read, from the results of the tasks that read it; nothing where it was.

    `failed` is the result of the task that failed, if one did.
    """
    for result in results:
        if result.get("unreachable"):
            return [f"does not answer: {_line(result)}: see that it is on, and that ssh reaches it"]
    if not failed:
        return []
    said = _line(failed)
    if "sudo password" in said or "become password" in said:
        return [f"cannot be read: {said}: allow sudo without a password, or set ansible_become_password in a vault"]
    return [f"cannot be read: {said}"]


def _line(result: Json) -> str:
    """The message of a result, on one line; of facts that could not be gathered, that of the module that failed."""
    inner = [one for one in (result.get("failed_modules") or {}).values() if isinstance(one, Mapping)]
    said = next((one.get("module_stderr") or one.get("msg") for one in inner), None) or result.get("msg")
    return " ".join(str(said or "no message").split())[:_LONGEST].rstrip(".")


def preflight_table(hostvars: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """`node  finding`, a line for each finding of each node; none where all are fit."""
    found = [(name, str(why)) for name in names for why in hostvars[name].get("preflight_reasons") or []]
    width = max((len(name) for name, _ in found), default=0)
    before = ["", *(name for name, _ in found)]
    return [f"{'' if name == last else name:<{width}}  {why}" for last, (name, why) in zip(before, found)]


#: Profiles of tuned itself that set the governor as role tuning does (its *.conf: governor=performance, by inclusion).
GOVERNED = {
    "throughput-performance", "latency-performance", "network-throughput", "network-latency", "accelerator-performance",
    "hpc-compute",
}  # fmt: skip


def tuned_notes(observed: Json) -> list[str]:
    """A tuned that sets the governor otherwise than role tuning, or may: the last one to set it wins."""
    profiles = str(observed.get("tuned_profile") or "").split()
    if not profiles or profiles[-1] in GOVERNED:
        return []
    said = (
        f"tuned runs with profile {' '.join(profiles)}, which may set the CPU governor otherwise than role tuning does"
    )
    return [f"{said}: tuned-adm profile accelerator-performance, or systemctl disable --now tuned"]


def preflight_notes(observed: Json, wanted: Json) -> list[str]:
    """What is worth knowing and stops nothing."""
    notes = []
    if observed.get("nouveau_loaded") and wanted["gpu_server"]:
        notes.append("kernel module nouveau is loaded; role kernel switches it off, which takes a reboot")
    first = first_reboot(observed, wanted)
    if first:
        notes.append(f"kernel {observed['kernel']} runs; the node boots {first} before anything is built")
    if built_modules(observed, wanted) and observed["headers"] == "unknown":
        notes.append("whether headers of the running kernel can be installed is not known before lists are fetched")
    if (observed.get("os") or {}).get("rhel_like") and wanted.get("monitors"):
        notes.append(
            "no Prometheus: the system has no package of it; the exporters of all nodes run, for a Prometheus of the "
            "site"
        )
    own = python_notes(observed, wanted) + device_notes(observed, wanted) + tuned_notes(observed)
    own += stated_notes(wanted) + claim_notes(observed, wanted)
    own += carrier_notes(observed, wanted) + filter_notes(observed, wanted) + time_notes(observed, wanted)
    return notes + own + site_notes(observed, wanted) + foreign_notes(observed, wanted)


def preflight_image_mib(room: Mapping[str, Any], *, comes: bool, makes: bool, pulls: bool) -> int:
    """Room in MiB that a training image for GPUs takes on a node, 0 where none comes.

    room: `head` of the one that makes and keeps it, `node` of those that pull it.
    """
    if not comes:
        return 0
    return int(room["head"]) if makes else int(room["node"]) if pulls else 0
