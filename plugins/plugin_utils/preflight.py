"""The decision whether a node can be provisioned, from what was observed of it; needs no connection."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.claims import claim_notes, claim_reasons
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.compatibility import branch_of, known, numbers
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.devices import device_notes, device_reasons
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.foreign import foreign_notes, foreign_reasons
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.layers import is_made, layer_reasons
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.routing import routing_reasons
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.upgrade import changed_parts

Json = Mapping[str, Any]

#: Kernel drivers of USB network functions: what a BMC shows to its host (iDRAC's "OS to iDRAC Pass-through").
USB_NETWORK_DRIVERS = frozenset({"cdc_eem", "cdc_ether", "cdc_ncm", "cdc_subset", "rndis_host"})
#: What else than mounting more makes room on a file system of its own.
ROOM = {"/boot": "remove kernels that do not run (apt-get autoremove --purge, dnf remove --oldinstallonly)"}

#: Hashes that apt's sqv has refused in a key's own signatures since February 2026.
WEAK_HASHES = frozenset({"md5", "sha1", "ripemd160"})
#: Where the certificate lies that DKMS signs with, and what makes it where it is not there yet.
MOK_FILE = {"ubuntu": "/var/lib/shim-signed/mok/MOK.der"}
MOK_FILE_ELSEWHERE = "/var/lib/dkms/mok.pub"


def preflight_facts(observed: Json) -> dict[str, Any]:
    """What filter os_key wants to know, from the observed os-release."""
    system = observed["os"]
    return {
        "distribution": system["id"],
        "distribution_version": system["version"],
        "distribution_major_version": system["version"].split(".")[0],
        "os_family": "RedHat" if system["rhel_like"] else "",
    }


def address_owners(names: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Address -> the hosts of the inventory that have it, as Ansible's own or that of a fabric port."""
    owners: dict[str, list[str]] = {}
    for name in names:
        own = hostvars[name]
        ports = [port["address"] for port in own.get("fabric_ports") or []]
        for address in [own.get("ansible_host", name), *ports]:
            owners.setdefault(str(address).split("/")[0], []).append(name)
    return owners


def is_ipv6(text: str) -> bool:
    """Whether an address is an IPv6 one, in brackets or with a zone too; a name is none."""
    try:
        return ipaddress.ip_address(str(text).strip("[]").partition("%")[0]).version == 6
    except ValueError:
        return False


def is_address(text: Any) -> bool:
    """Whether it is an IPv4 address or a name, as Slurm, the table of hosts and the firewall take them."""
    if re.fullmatch(r"[0-9.]+", str(text)):
        try:
            return bool(ipaddress.IPv4Address(str(text)))
        except ValueError:
            return False
    return isinstance(text, str) and re.fullmatch(r"\w[\w.-]*", text) is not None


def system_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Operating system, architecture, kernel, Python, init and memory."""
    system = f"{observed['os']['id']} {observed['os']['version']}".lower()
    accepted = wanted["supported_os"]
    if not any(system == name or system.startswith(name + ".") for name in accepted):
        yield f"operating system is {system}; supported: {', '.join(accepted)} (preflight_supported_os)"
    if observed["architecture"] not in wanted["architectures"]:
        yield f"architecture is {observed['architecture']}; supported: {', '.join(wanted['architectures'])}"
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


def address_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Interfaces and addresses as the inventory declares them."""
    if observed["links_error"]:
        yield f"cannot list the network interfaces: {observed['links_error']}"
        return
    links = observed["links"]
    held = {address: name for name, addresses in links.items() for address in addresses}
    management = held.get(wanted["address"])
    if is_ipv6(wanted["address"]):
        yield (
            f"its management address {wanted['address']} is an IPv6 one, and Slurm, leases and the firewall are set up "
            f"for IPv4 in this release: give ansible_host the node's IPv4 address"
        )
    elif wanted.get("ssh_host"):
        yield (
            f"its address {wanted['ssh_host']} is written as ansible_ssh_host, by which Ansible logs in, and Slurm, "
            "/etc/hosts and the firewall are set up by ansible_host: write it as ansible_host"
        )
    elif not is_address(wanted["address"]):
        yield (
            f"its ansible_host {wanted['address']!r} is neither an IPv4 address nor a name, and goes to Slurm, "
            "/etc/hosts and the firewall as it stands: leave out user (ansible_user), port (ansible_port) and prefix"
        )
    elif management is None and not set(held) - {"127.0.0.1"} - {
        a for p in wanted["fabric_ports"] for a in links.get(p["interface"], ())
    }:
        yield (
            "it has no IPv4 address but those of fabric ports, and Slurm, leases and the firewall are set up for IPv4 "
            "in this release: give its management port one, and set ansible_host to it"
        )
    for port in wanted["fabric_ports"]:
        name, declared = port["interface"], port["address"]
        if name not in links and is_made(port):
            pass  # what it stands on is looked at by itself
        elif name not in links:
            there = ", ".join(sorted(set(links) - {"lo"})) or "none"
            yield f"fabric port {name} does not exist; interfaces there: {there}"
        elif name == management:
            yield f"fabric port {name} carries the management address {wanted['address']}; use another port"
        if observed["drivers"].get(name) in USB_NETWORK_DRIVERS:
            yield (
                f"fabric port {name} is the USB network function of the node's BMC (driver "
                f"{observed['drivers'][name]}): take it out of fabric_ports"
            )
        try:
            address = ipaddress.IPv4Interface(declared)
        except ValueError as error:
            yield f"fabric port {name}: address {declared!r} is not an IPv4 address with prefix: {error}"
            continue
        if "/" not in declared:
            yield f"fabric port {name}: address {declared} lacks its prefix length, e.g. /24"
        if address.is_link_local:
            yield f"fabric port {name}: address {declared} is link-local, as BMCs have: give the port one of its rail"
        holder = held.get(str(address.ip))
        if holder not in (None, name):
            yield f"fabric address {address.ip} is already on interface {holder}, not on {name}"
    for address, names in wanted["addresses"].items():
        if len(names) > 1 and wanted["name"] in names:
            yield f"address {address} is declared more than once in the inventory: {', '.join(names)}"


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


def kernel_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Running kernel, its headers and Secure Boot, where modules are built."""
    built = " and ".join(built_modules(observed, wanted))
    if not built:
        return
    kernel, newest = observed["kernel"], (observed["kernels"] or [observed["kernel"]])[0]
    if kernel != newest:
        yield (
            f"kernel {kernel} runs and {newest} is the newest installed: reboot into it (or remove it), so that the "
            f"modules of {built} are built for the kernel that the next boot takes"
        )
    if observed["headers"] == "missing":
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


def key_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Repository keys that the node's apt will refuse."""
    if not observed["sqv"]:
        return
    for name, keys in sorted(wanted["repository_keys"].items()):
        weak = [k for k in keys if not {str(h).lower() for h in k["self_signature_hashes"]} - WEAK_HASHES]
        if keys and len(weak) == len(keys):
            yield (
                f"the key {keys[0]['fingerprint']} of repository {name} has only SHA-1 self-signatures, which apt of "
                f"this node (sqv) refuses: use the maker's repository and key for this system, or a mirror that is "
                f"signed by another key"
            )


def repository_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Repositories that role repos will refuse, because nobody has said whose key signs them."""
    for name in wanted["undeclared_keys"]:
        yield (
            f"no fingerprint is known for the key of repository '{name}' on this system: compare that of its key file "
            f"with what its vendor publishes and set repos_fingerprints: {{{name}: ...}}"
            + (", or set ofed_provider to inbox" if name == "doca" else "")
        )


def engine_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """What the archive of the remoting engine needs of the node, where it says it: told before anything is installed.

    A server's driver is the one that the site installs; of a driver that the inventory does not name nothing is known.
    """
    for key in ("engine", "engine_torch", "engine_tensorflow"):
        yield from _engine_reasons(observed, wanted, wanted.get(key) or {}, f"remoting_{key}_artifact")


def _engine_reasons(observed: Json, wanted: Json, engine: Json, variable: str) -> Iterator[str]:
    name = f"the remoting engine {engine.get('engine')} {engine.get('release')} ({variable})"
    if engine.get("machine") not in (None, observed["architecture"]):
        yield f"{name} is for {engine['machine']}, and the node is {observed['architecture']}"
        return
    parts = [engine.get(part) or {} for part in (("server", "client") if wanted["gpu_server"] else ("client",))]
    needed = max((str(part.get("glibc") or engine.get("glibc") or "") for part in parts), key=numbers, default="")
    has = str(observed.get("glibc") or "")
    if needed and has and numbers(has) < numbers(needed):
        yield (f"{name} needs glibc {needed}, and the node has {has}: take a release that is built for an older system")
    driver = str((wanted["stack"].get("nvidia_driver") or {}).get("version") or "")
    least = known()["cuda_driver"].get(str(engine.get("cuda") or ""))
    if wanted["gpu_server"] and driver and least and branch_of(driver) < int(least):
        yield (
            f"{name} has a server that is built for CUDA {engine['cuda']}, for which the driver has to be of branch "
            f"{least} or newer, and the node gets {driver}: take the engine's release for an older CUDA"
        )


CHECKS = (
    system_reasons,
    disk_reasons,
    name_reasons,
    address_reasons,
    layer_reasons,
    routing_reasons,
    claim_reasons,
    clock_reasons,
    device_reasons,
    kernel_reasons,
    work_reasons,
    foreign_reasons,
    confinement_reasons,
    key_reasons,
    repository_reasons,
    engine_reasons,
)


def preflight_reasons(observed: Json, wanted: Json) -> list[str]:
    """Every reason why a node cannot be provisioned, each a sentence with what to do."""
    return [reason for check in CHECKS for reason in check(observed, wanted)]


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
    return " ".join(str(said or "no message").split())[:400].rstrip(".")


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
    if built_modules(observed, wanted) and observed["headers"] == "unknown":
        notes.append("whether headers of the running kernel can be installed is not known before lists are fetched")
    if (observed.get("os") or {}).get("rhel_like"):
        notes.append(
            "no monitoring: the system has no packages of Prometheus and its exporters (role monitoring says so)"
        )
    own = device_notes(observed, wanted) + tuned_notes(observed) + claim_notes(observed, wanted)
    return notes + own + foreign_notes(observed, wanted)


def preflight_image_mib(room: Mapping[str, Any], *, comes: bool, makes: bool, pulls: bool) -> int:
    """Room in MiB that a training image for GPUs takes on a node, 0 where none comes.

    room: `head` of the one that makes and keeps it, `node` of those that pull it.
    """
    if not comes:
        return 0
    return int(room["head"]) if makes else int(room["node"]) if pulls else 0
