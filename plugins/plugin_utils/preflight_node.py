"""What preflight refuses of a node's own system: system, room, names, clock, kernel, running jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.compatibility import known, numbers
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.systems import slurm_stated, system_unstated
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.upgrade import changed_parts

Json = Mapping[str, Any]

#: What else than mounting more makes room on a file system of its own.
ROOM = {"/boot": "remove kernels that do not run (apt-get autoremove --purge, dnf remove --oldinstallonly)"}
#: Where the certificate lies that DKMS signs with, and what makes it where it is not there yet.
MOK_FILE = {"ubuntu": "/var/lib/shim-signed/mok/MOK.der"}
MOK_FILE_ELSEWHERE = "/var/lib/dkms/mok.pub"


def system_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Operating system, architecture, kernel, Python, init and memory."""
    system = f"{observed['os']['id']} {observed['os']['version']}".lower()
    accepted = wanted["supported_os"]
    if not any(system == name or system.startswith(name + ".") for name in accepted):
        yield f"operating system is {system}; supported: {', '.join(accepted)} (preflight_supported_os)"
    if lacking := wanted.get("system_lacks") or ():
        yield (
            f"no entry for {wanted['os_key']} in: {', '.join(lacking)}: leave the node out of the inventory, or "
            f"install a supported system; adding it to preflight_supported_os alone gives it nothing"
        )
    yield from stated_reasons(wanted)
    if observed["architecture"] not in wanted["architectures"]:
        why = known()["not_served"]["machines"].get(observed["architecture"])
        cure = f" ({why}): leave the node out of the inventory" if why else ""
        yield f"architecture is {observed['architecture']}; supported: {', '.join(wanted['architectures'])}{cure}"
    if numbers(observed["kernel"]) < numbers(wanted["kernel_min"]):
        yield f"kernel is {observed['kernel']}; at least {wanted['kernel_min']} is needed: upgrade and reboot"
    if numbers(observed["python"]) < numbers(wanted["python_min"]):
        yield f"Python is {observed['python']}; at least {wanted['python_min']} is needed"
    if not observed["root"]:
        yield "not root: let the login user become root (sudo), or log in as root"
    if not observed["systemd"]:
        yield "systemd is not the init of this machine; the roles manage services through it"
    if observed["memory_mib"] < wanted["memory_min_mib"]:
        yield f"memory is {observed['memory_mib']} MiB; at least {wanted['memory_min_mib']} MiB is needed"


def stated_reasons(wanted: Json) -> list[str]:
    """What of a system is on no record and the site states, where it does not, or states what cannot be."""
    system, release = str(wanted.get("os_key", "")), str(wanted.get("slurm_release") or "")
    driver = (wanted["stack"].get("nvidia_driver") or {}).get("version")
    without = [*(wanted.get("left_out") or ()), *([] if wanted["scheduled"] else ["slurm"])]
    stated = {"slurm_release": release, "nvidia_driver_version": driver}
    return [*system_unstated(system, stated, without, wanted["gpu_server"]), *slurm_stated(system, release)[0]]


def stated_notes(wanted: Json) -> list[str]:
    """What is known of a release of Slurm that the inventory states."""
    return slurm_stated(str(wanted.get("os_key", "")), str(wanted.get("slurm_release") or ""))[1]


def python_notes(observed: Json, wanted: Json) -> list[str]:
    """A Python of the node that is newer than what this release of ansible-core supports there."""
    used = str(wanted.get("ansible_core", ""))
    newest = known()["ansible_python"].get(".".join(used.split(".")[:2]))
    if not newest or numbers(observed["python"])[:2] <= numbers(newest):
        return []
    return [
        f"Python {observed['python']} is newer than ansible-core {used} supports on nodes ({newest}): should a module "
        f"fail, install the toolkit with Python 3.12 or later, which brings a newer one"
    ]


def disk_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Free space; paths on one file system share it, so the largest need counts there."""
    worst: dict[Any, tuple[int, str, int]] = {}
    for path, need in wanted["disk_min_mib"].items():
        disk = observed["disks"].get(path)
        if disk is None:
            yield f"how much room {path} has was not observed: record the node anew"
            continue
        entry = (int(need), str(disk["existing"]), int(disk["free_mib"]))
        worst[disk["device"]] = max(worst.get(disk["device"], entry), entry)
    for need, path, free in worst.values():
        if free < need:
            yield f"{path} has {free} MiB free; {need} MiB is needed: {ROOM.get(path, 'make room or mount more')}"


def name_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """The node knows itself by its inventory name and can resolve it."""
    own, declared = observed["hostname"].split(".")[0], wanted["name"].split(".")[0]
    if own != declared:
        yield f"its host name is {own}, the inventory calls it {declared}: hostnamectl hostname {declared}"
    if not observed["hostname_resolves"]:
        yield f"its own host name {observed['hostname']} does not resolve: add it to /etc/hosts or DNS"


def clock_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """The clock, refused only where the offset is surely too large: it is known to within the way to the node."""
    answered = observed.get("answered_s")
    if answered is None:  # recorded: that clock has moved on
        return
    ahead, behind = observed["node_time_s"] - answered, -observed["offset_at_most_s"]
    for offset, side in ((ahead, "ahead of"), (behind, "behind")):
        if offset > wanted["time_offset_max_s"]:
            yield f"its clock is at least {offset:.1f} s {side} the controller: set it (date, chronyd -q)"


def built_modules(observed: Json, wanted: Json) -> list[str]:
    """Whose kernel modules DKMS will build on this node, and sign with a key of the node's own."""
    if observed["in_container"]:
        return []
    stack, built = wanted["stack"], []
    provider = (stack.get("nvidia_driver") or {}).get("provider", "")
    # Canonical's modules, which are Ubuntu's own too, come built and signed.
    signed = provider == "canonical" or (provider == "distribution" and observed["os"]["id"] == "ubuntu")
    if wanted["gpu_server"] and not wanted["user_space_only"] and provider and not signed:
        built.append("the NVIDIA driver")
    if (stack.get("ofed") or {}).get("provider") == "doca":
        built.append("DOCA-OFED")
    return built


def newest_kernel(observed: Json) -> str:
    """The newest installed kernel, which the next boot takes."""
    return str((observed["kernels"] or [observed["kernel"]])[0])


def first_reboot(observed: Json, wanted: Json) -> str:
    """The kernel that the node boots before anything is built; "" where it runs already, or nobody may boot it.

    It needs consent to reboots, a node free of work, and another machine that Ansible runs on; and no reboot for this
    very kernel may have ended in another.
    """
    site, newest = wanted.get("site") or {}, newest_kernel(observed)
    if observed["kernel"] == newest or not built_modules(observed, wanted):
        return ""
    consent = site.get("reboots") and not site.get("controller") and site.get("tried") != newest
    return newest if consent and not _work(observed) else ""


def _work(observed: Json) -> str:
    """What runs on the node and would end with a reboot."""
    if observed["jobs"]:
        return f"jobs run here ({', '.join(observed['jobs'])})"
    containers = (observed.get("foreign") or {}).get("containers") or {}
    return "containers run here" if containers and not observed["provisioned_release"] else ""


def kernel_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Running kernel, its headers and Secure Boot, where modules are built."""
    built = " and ".join(built_modules(observed, wanted))
    if not built:
        return
    kernel, newest, site = observed["kernel"], newest_kernel(observed), wanted.get("site") or {}
    first = first_reboot(observed, wanted)
    if kernel != newest and not first:
        chosen = f"grub-set-default, or grubby --set-default /boot/vmlinuz-{newest}"
        how = "the same command with -e reboot=if_needed boots it first, on every such node"
        if site.get("controller"):
            how = "reboot it by hand, because it is the machine that Ansible runs on"
        elif site.get("tried") == newest:
            how = f"a reboot for it ended in {kernel}; choose it ({chosen}) and reboot by hand"
        elif _work(observed):
            how = f"{_work(observed)}: wait for their end, and run the same command with -e reboot=if_needed"
        yield (
            f"kernel {kernel} runs and {newest} is the newest installed, for which the modules of {built} have to be "
            f"built: {how} (or remove {newest})"
        )
    if observed["headers"] == "missing" and not first:
        yield (
            f"modules of {built} are built for kernel {kernel}, whose headers are neither here nor in the package "
            f"lists: upgrade the kernel and reboot, or add a repository that still has them"
        )
    if observed["secure_boot"] == "enabled" and not observed["mok_enrolled"]:
        system = observed["os"]["id"]
        signed = ", take Canonical's signed driver (nvidia_driver_provider: canonical)" if system == "ubuntu" else ""
        yield (
            f"Secure Boot is on, and it will not load the modules of {built}, which are built and signed here: enrol "
            f"the node's key (mokutil --import {MOK_FILE.get(system, MOK_FILE_ELSEWHERE)}, reboot, confirm at the "
            f"console){signed}, or switch Secure Boot off"
        )


def work_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Another version of what jobs use under running jobs: driver, Fabric Manager and Docker would be replaced."""
    if not observed["provisioned_release"] or not observed["jobs"] or wanted["change_under_jobs"]:
        return
    changed = changed_parts(observed, wanted)
    if changed:
        node = wanted["name"].split(".")[0]
        yield (
            f"it was provisioned with stack release {observed['provisioned_release']}, {wanted['release']} is asked "
            f"for ({'; '.join(changed)}), and jobs run here ({', '.join(observed['jobs'])}), which would lose their "
            f"driver: on the head, scontrol update "
            f"NodeName={node} State=DRAIN Reason=upgrade, wait until squeue -w {node} is empty, run again with "
            f"-e reboot=if_needed, and then scontrol update NodeName={node} State=RESUME "
            f"(preflight_change_under_jobs: true does it regardless)"
        )


def confinement_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Jobs that would see every GPU of their node, whatever they asked for."""
    if wanted["scheduled"] and wanted["gpu_server"] and not observed["in_container"] and not wanted["confined"]:
        yield (
            f"Slurm of {observed['os']['id']} {observed['os']['version']} does not know cgroup v2, so that every job "
            f"sees all GPUs of the node: reinstall it with a later system, or accept it "
            f"(slurm_unconfined_jobs: true), or do without the scheduler (slurm_pool: {{scheduler: none}})"
        )
